#pragma once

#include <cstdint>
#include <type_traits>

#include "shale/kernels/simt/cuda/shared.h"

namespace shale::kernels::cuda::simt {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
// GPUs before sm_80 have no asynchronous copies: the thread copies the bytes itself, and may read
// them at once.
template <int kBytes>
__device__ __forceinline__ void cp_async_part(void* to, const void* from, int bytes) {
  using Words =
      std::conditional_t<kBytes == 16, uint4, std::conditional_t<kBytes == 8, uint2, uint32_t>>;
  static_assert(sizeof(Words) == kBytes);
  if (bytes == kBytes) {
    *static_cast<Words*>(to) = *static_cast<const Words*>(from);
    return;
  }
  for (int i = 0; i < kBytes / 4; ++i) {
    uint32_t word = 0;
    for (int b = 0; b < 4; ++b) {
      if (4 * i + b < bytes)
        word |= uint32_t{static_cast<const uint8_t*>(from)[4 * i + b]} << (8 * b);
    }
    static_cast<uint32_t*>(to)[i] = word;
  }
}
__device__ __forceinline__ void cp_async_commit() {}
template <int kNewest>
__device__ __forceinline__ void cp_async_wait() {}
#else
// Copies of 16 bytes bypass the L1 cache (.cg), because the data is copied only once.
template <int kBytes>
__device__ __forceinline__ void cp_async_part(void* to, const void* from, int bytes) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address(to)),
                 "l"(from), "n"(kBytes), "r"(bytes)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address(to)),
                 "l"(from), "n"(kBytes), "r"(bytes)
                 : "memory");
  }
}

__device__ __forceinline__ void cp_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int kNewest>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kNewest) : "memory");
}
#endif

template <int kBytes>
__device__ __forceinline__ void cp_async(void* to, const void* from, bool valid = true) {
  cp_async_part<kBytes>(to, from, valid ? kBytes : 0);
}

}  // namespace shale::kernels::cuda::simt
