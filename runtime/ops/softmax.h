#pragma once

#include "shale/runtime/tensor/tensor.h"

namespace shale {

// softmax along a dimension, and its logarithm; the result is like x. Computed in f32, and with f32
// results in an amp::Autocast region. Along another dimension than the last, x and the result are
// copied. If all elements along the dimension are -inf, the result is NaN. Throws ShapeError. Keeps
// the result for backward.
Tensor softmax(const Tensor& x, int dim = -1);
Tensor log_softmax(const Tensor& x, int dim = -1);

}  // namespace shale
