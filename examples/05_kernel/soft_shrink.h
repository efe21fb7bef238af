#pragma once

#include <shale/tensor.h>

namespace example {

// Soft shrinkage, elementwise: x moved towards 0 by s >= 0, and 0 where it would pass it. x: any
// shape, contiguous, f32. Throws ShapeError, DTypeError. Keeps x for backward.
shale::Tensor soft_shrink(const shale::Tensor& x, float s);

}  // namespace example
