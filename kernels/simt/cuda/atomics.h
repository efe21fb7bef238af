#pragma once

#include "shale/kernels/simt/cuda/builtins.h"

namespace shale::kernels::cuda::simt {

// CUDA's atomics take unsigned long long, which is not the type uint64_t.
using Wide = unsigned long long;

__device__ __forceinline__ float atomic_add(float* p, float value) {
  return atomicAdd(p, value);
}
__device__ __forceinline__ int32_t atomic_add(int32_t* p, int32_t value) {
  return atomicAdd(p, value);
}
__device__ __forceinline__ uint32_t atomic_add(uint32_t* p, uint32_t value) {
  return atomicAdd(p, value);
}
__device__ __forceinline__ uint64_t atomic_add(uint64_t* p, uint64_t value) {
  return atomicAdd(reinterpret_cast<Wide*>(p), Wide{value});
}

__device__ __forceinline__ int32_t atomic_max(int32_t* p, int32_t value) {
  return atomicMax(p, value);
}
__device__ __forceinline__ uint32_t atomic_max(uint32_t* p, uint32_t value) {
  return atomicMax(p, value);
}

__device__ __forceinline__ uint32_t atomic_cas(uint32_t* p, uint32_t expected, uint32_t value) {
  return atomicCAS(p, expected, value);
}
__device__ __forceinline__ uint64_t atomic_cas(uint64_t* p, uint64_t expected, uint64_t value) {
  return atomicCAS(reinterpret_cast<Wide*>(p), Wide{expected}, Wide{value});
}

__device__ __forceinline__ uint32_t atomic_exchange(uint32_t* p, uint32_t value) {
  return atomicExch(p, value);
}
__device__ __forceinline__ uint32_t atomic_increment(uint32_t* p, uint32_t last) {
  return atomicInc(p, last);
}

}  // namespace shale::kernels::cuda::simt
