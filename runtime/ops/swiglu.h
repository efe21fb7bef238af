#pragma once

#include "shale/runtime/tensor/tensor.h"

namespace shale {

// The feed-forward block of Llama and its kin (arXiv:2002.05202, equation 6):
//
//   y = (silu(x w_gateᵀ) * (x w_upᵀ)) w_downᵀ + residual,  silu(x) = x / (1 + e^-x)
//
// One pass over x makes both products and the activation, backward's derivatives ride on the
// product with w_down. x: [..., C], contiguous; w_gate, w_up: [F, C]; w_down: [C2, F]; residual and
// y: [..., C2]; one dtype. residual is optional. Throws ShapeError, DTypeError. Keeps x, both
// products and the activation for backward, 3 F elements a token besides x.
Tensor swiglu(const Tensor& x, const Tensor& w_gate, const Tensor& w_up, const Tensor& w_down,
              const Tensor& residual = {});

}  // namespace shale
