#pragma once

#include "shale/kernels/simt/hopper.h"

namespace shale::kernels::SHALE_BACKEND {

// Warpgroups 0 to kWarpgroups - 1 take turns, for example at the tensor cores. The turn is passed
// through named barriers from kFirstBarrier on, one per warpgroup. Warpgroup 0 has the first turn.
// Every pass() needs a take(): the last warpgroup starts with pass(), and at the end both functions
// have been called equally often for every barrier.
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
