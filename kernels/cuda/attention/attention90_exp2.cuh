#pragma once

#include "shale/kernels/simt/softmax.h"

namespace shale::kernels::SHALE_BACKEND {

// 2^x on the FMA pipe, where y = (x + 56) / 64 is in [0, 1].
//
// Exponentials have their own pipe, which does 16 per cycle, while the FMA pipe does 128
// operations. With heads of 64 a tile keeps that pipe busy longer than the tensor cores. So some
// exponentials of a tile are computed as in FlashAttention-4: 2^x = 2^n 2^f with n the nearest
// integer, |f| <= 1/2, and 2^f by a polynomial of degree 3. Its coefficients minimise the relative
// error, 2^-13.7, by Remez's algorithm; probabilities are rounded to bf16 or f16, with errors of
// 2^-9 and 2^-12.
//
// x is in [-56, 8], because an FMA clamps y to [0, 1] at no cost. Smaller x add 2^-56 to a sum of
// at least 1, which does not change an f32. Adding 1.5 * 2^17 rounds y to a multiple of 1/64 and
// leaves 64 y, as an integer, in the lowest bits.
__device__ __forceinline__ float exp2_by_fma(float y) {
  constexpr float kRounder = 196608.f, kUnit = 64.f, kLeast = 1.f / (1ull << 56);
  const float rounded = y + kRounder, f = y - (rounded - kRounder);
  float power = fmaf(f, 0.0551716691f * kLeast * kUnit * kUnit * kUnit,
                     0.242611122f * kLeast * kUnit * kUnit);
  power = fmaf(power, f, 0.693260985f * kLeast * kUnit);
  power = fmaf(power, f, 0.999928074f * kLeast);
  return simt::add_exponent(power, rounded);
}

}  // namespace shale::kernels::SHALE_BACKEND
