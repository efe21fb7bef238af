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
  float top_p = 1;           // and among the likeliest that have so much probability together
  uint64_t seed = 0;
};

// Continues `prompt` (at least one token) and returns the new tokens. Random numbers depend on
// (seed, position) only, so all ranks that hold the same model write the same text. When the
// context is full, the second half of what was written is kept as the new beginning. `on_token`
// sees every token as it is made.
std::vector<int32_t> generate(LanguageModel& model, Context& context,
                              const std::vector<int32_t>& prompt, const GenerateOptions& options,
                              const std::function<void(int32_t)>& on_token = {});

// Continues several prompts at once, none empty, each until `keeps_on` says no, there are
// options.tokens more, or the context is full; the token at which that is belongs to the result.
// `first`: the number of the first prompt among all that are continued, on which random numbers
// depend. Shorter prompts stand behind positions that nobody sees. Throws ShapeError for a prompt
// that is empty or fills the context.
std::vector<std::vector<int32_t>> generate_all(
    LanguageModel& model, Context& context, const std::vector<std::vector<int32_t>>& prompts,
    const GenerateOptions& options, int64_t first = 0,
    const std::function<bool(size_t prompt, int32_t token)>& keeps_on = {});

}  // namespace shale::models
