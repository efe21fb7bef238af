#pragma once

#include "shale/kernels/simt/cuda/shared.h"

namespace shale::kernels::cuda::simt {

// 16 bytes go past the first-level cache (.cg): what is copied once has no use for it.
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

template <int kBytes>
__device__ __forceinline__ void cp_async(void* to, const void* from, bool valid = true) {
  cp_async_part<kBytes>(to, from, valid ? kBytes : 0);
}

__device__ __forceinline__ void cp_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int kNewest>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kNewest) : "memory");
}

}  // namespace shale::kernels::cuda::simt
