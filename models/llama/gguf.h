#pragma once

#include "shale/models/language/gguf.h"

namespace shale::models {

// Describes Llama and its relatives in GGUF files for llama.cpp. Throws ConfigError for models that
// llama.cpp would compute differently: windows, YaRN-scaled positions, the family olmo2, and MoE
// models, whose format there differs.
GgufModel llama_gguf(const LanguageModelConfig& config);

}  // namespace shale::models
