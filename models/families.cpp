// Table of the language model families that Shale has.
#include "shale/models/gpt2/family.h"
#include "shale/models/language/family.h"
#include "shale/models/llama/family.h"

namespace shale::models {

std::vector<const ModelFamily*> own_model_families() {
  std::vector<const ModelFamily*> families = {&gpt2_family()};
  for (const ModelFamily* family : llama_families()) families.push_back(family);
  return families;
}

}  // namespace shale::models
