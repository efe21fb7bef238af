#pragma once

#include <string>

#include "shale/base/json.h"
#include "shale/comm/checkpoint/reader.h"
#include "shale/runtime/nn/module.h"

namespace shale::models {

// Returns a value of the description that the checkpoint's run stored (RunDescription::values);
// null if it is missing.
Json checkpoint_fact(const CheckpointReader& reader, const char* name);

// Reads a whole parameter or buffer as f32. ema: reads the moving average of a parameter. Throws
// DataError if the checkpoint has no such tensor of this shape.
std::vector<float> read_values(CheckpointReader& reader, const std::string& name,
                               const Shape& shape, bool ema = false);

}  // namespace shale::models
