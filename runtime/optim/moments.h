#pragma once

#include "shale/base/dtype.h"
#include "shale/runtime/optim/optimizer.h"

namespace shale::optim {

// The dtype of a moment m = rate * m + ... that is kept in f32 or bf16. Throws ConfigError naming
// the optimizer and the rate's option when it is kept otherwise, or when bf16, rounded to nearest,
// would stay as it is under multiplication with the rate.
DType moment_dtype(const char* optimizer, const char* rate_name, float rate, Moments moments);

}  // namespace shale::optim
