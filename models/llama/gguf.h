#pragma once

#include "shale/models/language/gguf.h"

namespace shale::models {

// Llama and its relatives in GGUF files, as llama.cpp reads them. Throws ConfigError for what it
// would compute otherwise: windows, rotary positions scaled by yarn, the family olmo2, and mixtures
// of experts, whose form there is another.
GgufModel llama_gguf(const LanguageModelConfig& config);

}  // namespace shale::models
