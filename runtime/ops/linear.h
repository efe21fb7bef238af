#pragma once

#include "shale/runtime/tensor/tensor.h"

namespace shale {

// y = x weightᵀ + bias + residual.
// x: [..., K], contiguous; weight: [N, K]; bias: [N]; residual and y: [..., N]. One dtype. bias and
// residual are optional. Throws ShapeError, DTypeError. Keeps x and weight for backward.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
              const Tensor& residual = {});

}  // namespace shale
