#pragma once

#include <shale/tensor.h>

namespace example {

// Soft shrinkage, elementwise: moves x towards 0 by s >= 0, stopping at 0. x: any shape,
// contiguous, f32. Throws ShapeError, DTypeError. Saves x for backward.
shale::Tensor soft_shrink(const shale::Tensor& x, float s);

}  // namespace example
