#pragma once

#include <vector>

#include "shale/models/language/family.h"

namespace shale::models {

// Returns the families of Llama and its relatives (llama.h): llama, mistral, qwen2, qwen3, olmo2,
// mixtral, olmoe, qwen3_moe.
std::vector<const ModelFamily*> llama_families();

}  // namespace shale::models
