#pragma once

#include <type_traits>

#include "shale/base/dtype.h"
#include "shale/kernels/simt/emu/builtins.h"

namespace shale::kernels::emu::simt {

inline float to_float(float x) {
  return x;
}
inline float to_float(bf16 x) {
  return static_cast<float>(x);
}
inline float to_float(f16 x) {
  return static_cast<float>(x);
}

// Any NaN becomes 0x7fff, the only 16-bit NaN that the hardware returns.
template <typename T>
T from_float(float x) {
  if constexpr (std::is_same_v<T, float>) {
    return x;
  } else {
    static_assert(sizeof(T) == 2);
    T result(x);
    if (x != x) result.bits = 0x7fff;
    return result;
  }
}

template <typename T>
uint32_t pack_pair(float low, float high) {
  static_assert(sizeof(T) == 2);
  return uint32_t{from_float<T>(low).bits} | uint32_t{from_float<T>(high).bits} << 16;
}

// Replaces a subnormal x by zero, like instructions with .ftz.
inline float flushed(float x) {
  return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x;
}
inline float fast_exp2(float x) {
  return flushed(std::exp2(flushed(x)));
}
inline float fast_log2(float x) {
  return std::log2(flushed(x));
}
inline float fast_rcp(float x) {
  return flushed(1.0f / flushed(x));
}
inline float fast_rsqrt(float x) {
  return 1.0f / std::sqrt(flushed(x));
}

inline int opaque(int x) {
  return x;
}

}  // namespace shale::kernels::emu::simt
