#pragma once

#include "shale/kernels/simt/simt.h"

namespace shale::kernels::SHALE_BACKEND {

// Returns the sum of the integers of all threads before this one. All threads of a block of
// kThreads must call it, once per kernel; it calls __syncthreads.
template <int kThreads, typename T>
__device__ __forceinline__ T sum_before(T value) {
  struct Slots {
    T of_warp[kThreads / kWarpSize];
  };
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  T before = value;  // at first includes this lane's value
#pragma unroll
  for (int step = 1; step < kWarpSize; step *= 2) {
    const T other = shfl_up(before, step);
    if (lane >= step) before += other;
  }
  Slots& slots = shared<Slots>();
  if (lane == kWarpSize - 1) slots.of_warp[warp] = before;
  before -= value;
  __syncthreads();
  for (int w = 0; w < warp; ++w) before += slots.of_warp[w];
  return before;
}

}  // namespace shale::kernels::SHALE_BACKEND
