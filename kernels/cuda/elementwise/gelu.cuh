#pragma once

#include "shale/kernels/simt/simt.h"

namespace shale::kernels::SHALE_BACKEND {

// GELU (arXiv:1606.08415) and its derivative, also for GEMM epilogues. Absolute errors are a few
// ulp of max(1, |x|); NaN stays NaN.

// The tanh form: x s with s = (1 + tanh u) / 2 = sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3).
// Uses the sigmoid, because 1 + tanh(u) cancels for negative u. e^-2u is computed as a power of
// two: the factors include log2(e).
inline constexpr float kGeluLinear = -2.3022082f;  // -2 sqrt(2/pi) log2(e)
inline constexpr float kGeluCubic = -2.3022082f * 0.044715f;

__device__ __forceinline__ float gelu_tanh(float x) {
  const float e = fast_exp2(x * fmaf(kGeluCubic, x * x, kGeluLinear));
  return x * fast_rcp(1.f + e);
}

// Computes s + x s (1 - s) d(2u)/dx, where s = sigmoid(2u) and u = sqrt(2/pi) (x + 0.044715 x^3).
// The difference 1 - s would cancel, so it is computed as e s with e = e^-2u. e is kept finite;
// otherwise e s could be inf * 0.
__device__ __forceinline__ float dgelu_tanh(float x) {
  constexpr float kLn2 = 0.69314718f;
  const float t = x * x;
  const float e = fast_exp2(fminf(x * fmaf(kGeluCubic, t, kGeluLinear), 126.f));
  const float s = fast_rcp(1.f + e);
  const float slope = fmaf(-3 * kGeluCubic * kLn2, t, -kGeluLinear * kLn2);
  // For large |x|, s (1 - s) is tiny and the derivative huge; in this order no product overflows.
  return fmaf((x * s) * (e * s), slope, s);
}

// Phi(x) = (1 + erf(x / sqrt 2)) / 2. The exact form of GELU is x Phi(x).
__device__ __forceinline__ float normal_cdf(float x) {
  return fmaf(0.5f, erff(x * 0.70710678f), 0.5f);
}

__device__ __forceinline__ float gelu_erf(float x) {
  return x * normal_cdf(x);
}

// Computes Phi(x) + x phi(x), with phi(x) = exp(-x^2 / 2) / sqrt(2 pi).
__device__ __forceinline__ float dgelu_erf(float x) {
  // exp(-x^2 / 2); the factor is -log2(e) / 2
  const float density = fast_exp2(-0.72134752f * (x * x));
  return fmaf(x * 0.39894228f, density, normal_cdf(x));
}

}  // namespace shale::kernels::SHALE_BACKEND
