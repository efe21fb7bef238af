#pragma once

#include "shale/runtime/tensor/tensor.h"

namespace shale {

// exp(x) / the sum of exp(x) along a dimension, and its logarithm; like x. Computed in f32, and
// with f32 results in a region of amp::Autocast. Along another dimension than the last, x and the
// result are copied. What is all -inf along the dimension is NaN. Throws ShapeError. Keeps the
// result for backward.
Tensor softmax(const Tensor& x, int dim = -1);
Tensor log_softmax(const Tensor& x, int dim = -1);

}  // namespace shale
