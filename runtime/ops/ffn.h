#pragma once

#include "shale/runtime/tensor/tensor.h"

namespace shale {

enum class Gelu { kTanh, kErf };  // tanh approximation, or exact form (arXiv:1606.08415)

// Feed-forward block of a transformer: y = gelu(x w1ᵀ + b1) w2ᵀ + b2 + residual. Bias, GELU, its
// derivative and the residual are fused into the GEMMs. x: [..., C], contiguous; w1: [F, C]; b1:
// [F]; w2: [C2, F]; b2: [C2]; residual and y: [..., C2]. b2 and residual are optional. Keeps x, the
// pre-activation and the activation for backward.
Tensor ffn(const Tensor& x, const Tensor& w1, const Tensor& b1, const Tensor& w2, const Tensor& b2,
           const Tensor& residual = {}, Gelu gelu = Gelu::kTanh);

}  // namespace shale
