#pragma once

#include "shale/kernels/simt/simt.h"

namespace shale::kernels::SHALE_BACKEND {

// Sums over the threads that share a row: a warp, or a one-dimensional block of whole warps. Every
// thread gets the same bits: a butterfly over the lanes, then warp by warp.
inline constexpr int kMaxRowSums = 2;

struct RowSumSlots {
  float of_warp[2][kMaxRowSums][kWarpSize];
};

// Replaces each of `sums` by its total over the row. A block calls __syncthreads once: successive
// calls alternate between two halves of the slots, so that no thread still reads what another
// writes. `turn` must be 0, 1, 0, 1, ...
template <bool kWarpPerRow, int kCount>
__device__ __forceinline__ void row_sums(float (&sums)[kCount], int turn) {
  static_assert(kCount <= kMaxRowSums);
#pragma unroll
  for (float& sum : sums) sum = warp_sum(sum);
  if constexpr (!kWarpPerRow) {
    auto& slots = shared<RowSumSlots>().of_warp[turn];
    const int lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize;
    const int warps = blockDim.x / kWarpSize;
    if (lane < kCount) slots[lane][warp] = lane == 0 ? sums[0] : sums[kCount - 1];
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      sums[k] = slots[k][0];
      for (int i = 1; i < warps; ++i) sums[k] += slots[k][i];
    }
  }
}

}  // namespace shale::kernels::SHALE_BACKEND
