// The families of language models that Shale has.
#include "shale/models/gpt2/family.h"
#include "shale/models/language/family.h"

namespace shale::models {

std::vector<const ModelFamily*> own_model_families() {
  return {
      &gpt2_family(),
  };
}

}  // namespace shale::models
