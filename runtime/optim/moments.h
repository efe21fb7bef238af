#pragma once

#include "shale/base/dtype.h"
#include "shale/runtime/optim/optimizer.h"

namespace shale::optim {

// Returns the dtype of a moment m = rate * m + ... that is stored as f32 or bf16. Throws
// ConfigError, with the optimizer and the rate's option, for other formats, and if multiplication
// by the rate would not change a bf16 moment because of rounding.
DType moment_dtype(const char* optimizer, const char* rate_name, float rate, Moments moments);

}  // namespace shale::optim
