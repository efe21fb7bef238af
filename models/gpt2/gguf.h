#pragma once

#include <vector>

#include "shale/models/language/gguf.h"
#include "shale/models/weights/hf_weights.h"

namespace shale::models {

// Describes GPT-2 in GGUF files for llama.cpp. `tensors`: all parameters. Throws ConfigError for a
// GELU that is not the tanh form.
GgufModel gpt2_gguf(const LanguageModelConfig& config, const std::vector<HfTensor>& tensors);

}  // namespace shale::models
