#pragma once

#include "shale/kernels/simt/cuda/mbarrier.h"
#include "shale/kernels/simt/cuda/tensor_map.h"

namespace shale::kernels::cuda::simt {

__device__ __forceinline__ int cluster_rank() {
  uint32_t rank = 0;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
}

// The instructions are not .aligned, because the lanes of a warp may arrive separately.
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

// Returns the address that `p` has in the shared memory of block `rank`.
__device__ __forceinline__ uint32_t cluster_address(const void* p, int rank) {
  uint32_t there = 0;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_address(p)), "r"(rank));
  return there;
}

// The arrival is not .release.cluster, which would make a warp wait until the whole GPU sees its
// writes.
__device__ __forceinline__ void mbarrier_arrive_at(MBarrier& barrier, int rank) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(
                   cluster_address(&barrier, rank))
               : "memory");
}

__device__ __forceinline__ void tma_load_multicast(void* to, const TensorMap& map, MBarrier& full,
                                                   unsigned blocks, int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(shared_address(to)),
      "l"(&map), "r"(shared_address(&full)), "r"(x), "r"(y), "h"(static_cast<uint16_t>(blocks))
      : "memory");
}

__device__ __forceinline__ void send_word(uint32_t& to, uint32_t word, MBarrier& full, int rank) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(
                   cluster_address(&to, rank)),
               "r"(word), "r"(cluster_address(&full, rank))
               : "memory");
}

}  // namespace shale::kernels::cuda::simt
