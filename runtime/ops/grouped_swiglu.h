#pragma once

#include "shale/runtime/tensor/tensor.h"

namespace shale {

// The feed-forward blocks (SwiGLU) of an MoE layer's experts (arXiv:2002.05202, equation 6). Each
// expert e processes its own rows:
//
//   y[r] = (silu(x[r] w_gate[e]ᵀ) * (x[r] w_up[e]ᵀ)) w_down[e]ᵀ, offsets[e] <= r < offsets[e + 1]
//
// x: [R, C], contiguous; w_gate, w_up: [E, F, C]; w_down: [E, C2, F]; all have one dtype. offsets:
// [E + 1] i32 on the device, multiples of `align`. Returns [R, C2]. Rows after the last offset are
// undefined, also in backward. Throws ShapeError, DTypeError. Keeps x, both GEMM results and the
// activation for backward.
Tensor grouped_swiglu(const Tensor& x, const Tensor& w_gate, const Tensor& w_up,
                      const Tensor& w_down, const Tensor& offsets, int64_t align = 1);

}  // namespace shale
