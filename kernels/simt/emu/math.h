#pragma once

#include "kernels/simt/emu/builtins.h"
#include "runtime/base/dtype.h"

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

template <typename T>
T from_float(float x) {
  return T(x);
}

template <typename T>
uint32_t pack_pair(float low, float high) {
  static_assert(sizeof(T) == 2);
  return uint32_t{T(low).bits} | uint32_t{T(high).bits} << 16;
}

inline float fast_exp2(float x) {
  return std::exp2(x);
}
inline float fast_rcp(float x) {
  return 1.0f / x;
}
inline float fast_rsqrt(float x) {
  return 1.0f / std::sqrt(x);
}

}  // namespace shale::kernels::emu::simt
