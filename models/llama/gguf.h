#pragma once

#include "shale/models/language/gguf.h"

namespace shale::models {

// Describes Llama and its relatives for GGUF files of llama.cpp. Throws ConfigError for models that
// llama.cpp would compute differently (those with windows or YaRN-scaled positions, and the family
// olmo2), and for MoE models, which have another format in GGUF.
GgufModel llama_gguf(const LanguageModelConfig& config);

}  // namespace shale::models
