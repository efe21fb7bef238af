#pragma once

// CUDA's keywords for the host compiler: qualifiers are empty, and the index variables are those of
// the emulated thread. They are macros, because only macros can be spelled as in CUDA.

#include <cmath>
#include <cstdint>

#include "shale/kernels/simt/engine/atomics.h"
#include "shale/kernels/simt/engine/block.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__

#define threadIdx (::shale::emulator::thread_index())
#define blockIdx (::shale::emulator::block_index())
#define blockDim (::shale::emulator::block_size())
#define gridDim (::shale::emulator::grid_size())

namespace shale::kernels::emu::simt {

using emulator::Site;

inline constexpr int kWarpSize = emulator::kWarp;
inline constexpr uint32_t kAllLanes = 0xffffffffu;

inline void __syncthreads(Site site = Site::current()) {
  emulator::sync_threads(site);
}
inline void __syncwarp(uint32_t mask = kAllLanes, Site site = Site::current()) {
  emulator::sync_warp(mask, site);
}
inline void __threadfence() {
  emulator::thread_fence();
}

}  // namespace shale::kernels::emu::simt
