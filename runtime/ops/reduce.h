#pragma once

#include "shale/runtime/tensor/tensor.h"

namespace shale {

// Sum (mean) of all elements, a scalar f32: added in f64 by a fixed tree. x: contiguous.
Tensor sum(const Tensor& x);
Tensor mean(const Tensor& x);  // throws ShapeError when x is empty

// Sum over all dimensions but the last: [..., C] to [C] f32.
Tensor column_sum(const Tensor& x);

}  // namespace shale
