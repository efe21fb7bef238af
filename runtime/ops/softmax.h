#pragma once

#include "shale/runtime/tensor/tensor.h"

namespace shale {

// Softmax along a dimension, and its logarithm. The result has x's shape and dtype; in an
// amp::Autocast scope it is f32. Computed in f32. Along another dimension than the last, x and the
// result are copied. If all elements along the dimension are -inf, the result is NaN. Throws
// ShapeError. Keeps the result for backward.
Tensor softmax(const Tensor& x, int dim = -1);
Tensor log_softmax(const Tensor& x, int dim = -1);

}  // namespace shale
