#pragma once

#include "shale/kernels/simt/simt.h"

namespace shale::kernels::SHALE_BACKEND {

// SwiGLU's activation, silu(gate) * up (arXiv:2002.05202, equation 6: Swish1 is silu), also for
// GEMM epilogues. NaN stays NaN.

inline constexpr float kMinusLog2E = -1.44269504f;

// silu(x) = x sigmoid(x). Computes e^-x as a power of two. Relative error: a few ulp, plus |x| / 2
// ulp from rounding the exponent.
__device__ __forceinline__ float silu(float x) {
  return x * fast_rcp(1.f + fast_exp2(kMinusLog2E * x));
}

struct SwiGluGrads {
  float gate, up;
};

// Computes the gradients of gate and up from d, the gradient of silu(gate) * up. silu'(x) = s + x s
// (1 - s) with s = sigmoid(x). 1 - s is computed as e s, which does not cancel; e = e^-x is kept
// finite, or e s would be inf * 0.
__device__ __forceinline__ SwiGluGrads dswiglu(float gate, float up, float d) {
  const float e = fast_exp2(fminf(kMinusLog2E * gate, 126.f));
  const float s = fast_rcp(1.f + e);
  const float value = gate * s;
  return {.gate = d * up * fmaf(value, e * s, s), .up = d * value};
}

}  // namespace shale::kernels::SHALE_BACKEND
