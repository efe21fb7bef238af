#pragma once

#include "shale/base/dtype.h"
#include "shale/runtime/optim/optimizer.h"

namespace shale::optim {

// Returns the dtype of a moment, updated as m = rate * m + ..., that is stored as f32 or bf16.
// Throws ConfigError for other formats, and for a rate so close to 1 that rounding would undo the
// multiplication of a bf16 moment. The message names the optimizer and the rate's option.
DType moment_dtype(const char* optimizer, const char* rate_name, float rate, Moments moments);

}  // namespace shale::optim
