#pragma once

#include "shale/comm/checkpoint/reader.h"
#include "shale/runtime/nn/module.h"

namespace shale::models {

// Fills a model that has memory of its own, as materialize() gives it, with the weights and buffers
// of a checkpoint. `averaged`: the average of the weights. Throws DataError for a tensor that is
// missing or has another shape or element type, and as CheckpointReader.
void load_weights(CheckpointReader& reader, Module& model, Context& context, bool averaged = false);

// Whether a checkpoint has the average of a model's weights.
bool has_average(const CheckpointReader& reader, const Module& model);

}  // namespace shale::models
