#pragma once

#include "shale/kernels/simt/cuda/mbarrier.h"
#include "shale/kernels/simt/cuda/tensor_map.h"

namespace shale::kernels::cuda::simt {

// PTX requires .shared::cluster as the destination even for a block without a cluster.
template <typename... Coordinates>
__device__ __forceinline__ void tma_load(void* to, const TensorMap& map, MBarrier& full,
                                         Coordinates... at) {
  static_assert(sizeof...(at) >= 2 && sizeof...(at) <= kMaxTensorMapDims);
  const int x[] = {static_cast<int>(at)...};
  const uint32_t target = shared_address(to), barrier = shared_address(&full);
  if constexpr (sizeof...(at) == 2) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4}], [%2];" ::"r"(target),
        "l"(&map), "r"(barrier), "r"(x[0]), "r"(x[1])
        : "memory");
  } else if constexpr (sizeof...(at) == 3) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(target),
        "l"(&map), "r"(barrier), "r"(x[0]), "r"(x[1]), "r"(x[2])
        : "memory");
  } else {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(target),
        "l"(&map), "r"(barrier), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
        : "memory");
  }
}

template <typename... Coordinates>
__device__ __forceinline__ void tma_store(const TensorMap& map, const void* from,
                                          Coordinates... at) {
  static_assert(sizeof...(at) >= 2 && sizeof...(at) <= kMaxTensorMapDims);
  const int x[] = {static_cast<int>(at)...};
  const uint32_t source = shared_address(from);
  if constexpr (sizeof...(at) == 2) {
    asm volatile(
        "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(&map),
        "r"(source), "r"(x[0]), "r"(x[1])
        : "memory");
  } else if constexpr (sizeof...(at) == 3) {
    asm volatile(
        "cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], "
        "[%1];" ::"l"(&map),
        "r"(source), "r"(x[0]), "r"(x[1]), "r"(x[2])
        : "memory");
  } else {
    asm volatile(
        "cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], "
        "[%1];" ::"l"(&map),
        "r"(source), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
        : "memory");
  }
}

__device__ __forceinline__ void bulk_load(void* to, const void* from, int bytes, MBarrier& full) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1], %2, [%3];" ::"r"(shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(&full))
      : "memory");
}
__device__ __forceinline__ void bulk_store(void* to, const void* from, int bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
               "r"(shared_address(from)), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void bulk_add(float* to, const float* from, int bytes) {
  asm volatile(
      "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to),
      "r"(shared_address(from)), "r"(bytes)
      : "memory");
}

__device__ __forceinline__ void bulk_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
template <int kNewest>
__device__ __forceinline__ void bulk_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kNewest) : "memory");
}
template <int kNewest>
__device__ __forceinline__ void bulk_wait() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kNewest) : "memory");
}

__device__ __forceinline__ void prefetch_tensor_map(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

}  // namespace shale::kernels::cuda::simt
