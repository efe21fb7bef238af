#pragma once

#include "shale/runtime/tensor/tensor.h"

namespace shale {

// Feed-forward block of Llama and similar models (arXiv:2002.05202, equation 6):
//
//   y = (silu(x w_gateᵀ) * (x w_upᵀ)) w_downᵀ + residual,  silu(x) = x / (1 + e^-x)
//
// One pass over x computes both GEMMs and the activation; in backward the derivatives are fused
// into the GEMM with w_down. x: [..., C], contiguous; w_gate, w_up: [F, C]; w_down: [C2, F];
// residual (optional) and y: [..., C2]; all have one dtype. Throws ShapeError, DTypeError. Keeps x,
// both GEMM results and the activation for backward: 3 F elements per token besides x.
Tensor swiglu(const Tensor& x, const Tensor& w_gate, const Tensor& w_up, const Tensor& w_down,
              const Tensor& residual = {});

}  // namespace shale
