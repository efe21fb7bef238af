#pragma once

#include <type_traits>

#include "shale/kernels/simt/cuda/builtins.h"

namespace shale::kernels::cuda::simt {

// Storage is an array of bytes, because a __shared__ variable must not have constructors, and bf16
// has one.
template <typename T>
__device__ __forceinline__ T& shared() {
  static_assert(std::is_trivially_destructible_v<T>);
  __shared__ __align__(alignof(T)) unsigned char storage[sizeof(T)];
  return *reinterpret_cast<T*>(storage);
}

template <typename T = unsigned char>
__device__ __forceinline__ T* dynamic_shared() {
  extern __shared__ __align__(1024) unsigned char dynamic_storage[];
  return reinterpret_cast<T*>(dynamic_storage);
}

__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ void barrier_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void barrier_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

}  // namespace shale::kernels::cuda::simt
