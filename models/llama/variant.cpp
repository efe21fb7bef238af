#include "shale/models/llama/variant.h"

#include <string>

#include "shale/base/error.h"

namespace shale::models {

const LlamaVariant& llama_variant(std::string_view family) {
  std::string known;
  for (const LlamaVariant& variant : kLlamaVariants) {
    if (variant.family == family) return variant;
    known += cat(" ", variant.family);
  }
  throw ConfigError(cat("model: family is ", family, ", expected one of:", known));
}

}  // namespace shale::models
