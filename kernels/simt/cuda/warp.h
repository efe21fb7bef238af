#pragma once

#include "shale/kernels/simt/cuda/builtins.h"

namespace shale::kernels::cuda::simt {

template <typename T>
__device__ __forceinline__ T shfl(T value, int lane, uint32_t mask = kAllLanes) {
  return __shfl_sync(mask, value, lane);
}
template <typename T>
__device__ __forceinline__ T shfl_xor(T value, int bits, uint32_t mask = kAllLanes) {
  return __shfl_xor_sync(mask, value, bits);
}
template <typename T>
__device__ __forceinline__ T shfl_down(T value, int n, uint32_t mask = kAllLanes) {
  return __shfl_down_sync(mask, value, static_cast<unsigned>(n));
}
template <typename T>
__device__ __forceinline__ T shfl_up(T value, int n, uint32_t mask = kAllLanes) {
  return __shfl_up_sync(mask, value, static_cast<unsigned>(n));
}

__device__ __forceinline__ uint32_t ballot(bool predicate, uint32_t mask = kAllLanes) {
  return __ballot_sync(mask, predicate);
}
__device__ __forceinline__ bool any(bool predicate, uint32_t mask = kAllLanes) {
  return __any_sync(mask, predicate) != 0;
}
__device__ __forceinline__ bool all(bool predicate, uint32_t mask = kAllLanes) {
  return __all_sync(mask, predicate) != 0;
}

// Returns lane 0's value, so that the compiler knows that the value is the same for all lanes.
__device__ __forceinline__ int uniform(int x) {
  return shfl(x, 0);
}

}  // namespace shale::kernels::cuda::simt
