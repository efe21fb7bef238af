#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "shale/kernels/simt/emu/builtins.h"

namespace shale::kernels::emu::simt {

inline float fma_saturated(float a, float b, float c) {
  const float result = std::fmaf(a, b, c);
  return result > 0.f ? std::fmin(result, 1.f) : 0.f;
}

// Returns the hardware's canonical NaN if a or b is NaN.
inline float max_or_nan(float a, float b) {
  return a != a || b != b ? std::nanf("") : std::fmax(a, b);
}

inline float add_exponent(float x, float n) {
  return std::bit_cast<float>(std::bit_cast<uint32_t>(x) + (std::bit_cast<uint32_t>(n) << 23));
}

}  // namespace shale::kernels::emu::simt
