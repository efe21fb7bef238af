#pragma once

#include "shale/kernels/simt/hopper.h"

namespace shale::kernels::SHALE_BACKEND {

// Warpgroups 0 to kWarpgroups - 1 take turns, at the tensor cores for example. The turn goes round
// by named barriers, one for each warpgroup to wait at, from kFirstBarrier on. Warpgroup 0 has the
// first one. What was passed on is to be taken: pass(), which the last warpgroup begins with, and
// take() are called equally often for every barrier.
template <int kWarpgroups, int kFirstBarrier>
struct Turns {
  int warpgroup;

  __device__ __forceinline__ bool is_last() const { return warpgroup == kWarpgroups - 1; }
  __device__ __forceinline__ void take() const {
    barrier_sync(kFirstBarrier + warpgroup, 2 * kWarpgroupSize);
  }
  __device__ __forceinline__ void pass() const {
    barrier_arrive(kFirstBarrier + (warpgroup + 1) % kWarpgroups, 2 * kWarpgroupSize);
  }
};

}  // namespace shale::kernels::SHALE_BACKEND
