#pragma once

#include <optional>

#include "shale/base/dtype.h"

namespace shale::amp {

// Dtypes of a module. If `compute` is below f32, every trainable parameter has an f32 master in the
// optimizer, which is rounded into the parameter after each step.
struct Precision {
  DType compute = DType::kF32;  // dtype of parameters and of activations inside the module
  DType reduce = DType::kF32;   // dtype of gradients in accumulation and reduction: f32 or bf16
  std::optional<DType> output = {};  // dtype to which the module's result is cast; nullopt: no cast
};

// Throws ConfigError for a combination that no kernel supports.
void check(const Precision& precision);

}  // namespace shale::amp
