#pragma once

#include "shale/comm/parallel/tensor/tensor_plan.h"
#include "shale/models/language/model.h"

namespace shale::models {

// How tensor parallelism cuts GPT-2: heads, the feed-forward block's hidden channels, the rows of
// the token embedding.
comm::TensorPlan gpt2_tensor_plan(const LanguageModelConfig& config);

}  // namespace shale::models
