#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "shale/models/language/model.h"

namespace shale::models {

// Sampling options.
struct GenerateOptions {
  int64_t tokens = 256;
  float temperature = 0.8f;  // 0: always the most likely token
  int64_t top_k = 50;        // sample from the top k tokens; 0: from all
  float top_p = 1;           // sample from the most likely tokens whose total probability is top_p
  uint64_t seed = 0;
};

// Continues `prompt`, which has at least one token, and returns the new tokens. Random numbers
// depend only on the seed and the position, so all ranks with the same model produce the same text.
// When the context is full, generation continues from the last half of it. Calls `on_token` with
// each new token.
std::vector<int32_t> generate(LanguageModel& model, Context& context,
                              const std::vector<int32_t>& prompt, const GenerateOptions& options,
                              const std::function<void(int32_t)>& on_token = {});

// Continues several prompts in one batch. A text ends when `keeps_on` returns false for its last
// token, when options.tokens tokens are generated, or when the context is full. Its last token is
// part of the result. first: index of the first prompt among all prompts, which determines the
// random numbers. Shorter prompts are padded at the front with masked positions. Throws ShapeError
// for a prompt that is empty or fills the context.
std::vector<std::vector<int32_t>> generate_all(
    LanguageModel& model, Context& context, const std::vector<std::vector<int32_t>>& prompts,
    const GenerateOptions& options, int64_t first = 0,
    const std::function<bool(size_t prompt, int32_t token)>& keeps_on = {});

}  // namespace shale::models
