#pragma once

#include "shale/comm/parallel/tensor/tensor_plan.h"
#include "shale/models/language/model.h"

namespace shale::models {

// How tensor parallelism cuts Llama and its relatives: heads of queries together with those of the
// keys and values that they see, the hidden channels of feed-forward blocks, the rows of the
// embedding and of the output layer. Throws ConfigError for those that cannot be cut: norms over
// the row of all heads (OLMo 2), mixtures of experts.
comm::TensorPlan llama_tensor_plan(const LanguageModelConfig& config);

}  // namespace shale::models
