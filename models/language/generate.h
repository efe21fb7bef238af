#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "shale/models/language/model.h"

namespace shale::models {

// How the next token is chosen.
struct GenerateOptions {
  int64_t tokens = 256;
  float temperature = 0.8f;  // 0: the likeliest token
  int64_t top_k = 50;        // sample among so many; 0: among all
  uint64_t seed = 0;
};

// Continues `prompt` (at least one token) and returns the new tokens. Random numbers depend on
// (seed, position) only, so all ranks that hold the same model write the same text. When the
// context is full, the second half of what was written is kept as the new beginning. `on_token`
// sees every token as it is made.
std::vector<int32_t> generate(LanguageModel& model, Context& context,
                              const std::vector<int32_t>& prompt, const GenerateOptions& options,
                              const std::function<void(int32_t)>& on_token = {});

}  // namespace shale::models
