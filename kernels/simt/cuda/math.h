#pragma once

#include <bit>
#include <type_traits>

#include "shale/base/dtype.h"
#include "shale/kernels/simt/cuda/builtins.h"

namespace shale::kernels::cuda::simt {

__device__ __forceinline__ float to_float(float x) {
  return x;
}
__device__ __forceinline__ float to_float(bf16 x) {
  return __uint_as_float(static_cast<uint32_t>(x.bits) << 16);
}
__device__ __forceinline__ float to_float(f16 x) {
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(x.bits));
  return result;
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
// Rounds to nearest, ties to even, in software, because GPUs before sm_80 have no bf16.
__device__ __forceinline__ uint16_t bf16_bits(float x) {
  const uint32_t bits = __float_as_uint(x);
  if (x != x) return 0x7fff;
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
#endif

// Rounds to nearest, ties to even. A NaN becomes the hardware's canonical NaN, 0x7fff.
template <typename T>
__device__ __forceinline__ T from_float(float x) {
  if constexpr (std::is_same_v<T, float>) {
    return x;
  } else {
    T result;
    if constexpr (std::is_same_v<T, bf16>) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
      result.bits = bf16_bits(x);
#else
      asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(x));
#endif
    } else {
      static_assert(std::is_same_v<T, f16>);
      asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(x));
    }
    return result;
  }
}

template <typename T>
__device__ __forceinline__ uint32_t pack_pair(float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
  return uint32_t{from_float<T>(high).bits} << 16 | from_float<T>(low).bits;
#else
  uint32_t result;  // cvt takes the upper half first
  if constexpr (std::is_same_v<T, bf16>) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
  } else {
    static_assert(std::is_same_v<T, f16>);
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
  }
  return result;
#endif
}

__device__ __forceinline__ float fast_exp2(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
__device__ __forceinline__ float fast_log2(float x) {
  float result;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
__device__ __forceinline__ float fast_rcp(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
__device__ __forceinline__ float fast_rsqrt(float x) {
  float result;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// The asm is volatile; otherwise the compiler would see that x is equal in each iteration of a
// loop.
__device__ __forceinline__ int opaque(int x) {
  asm volatile("" : "+r"(x));
  return x;
}

}  // namespace shale::kernels::cuda::simt
