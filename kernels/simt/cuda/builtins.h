#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace shale::kernels::cuda::simt {

inline constexpr int kWarpSize = 32;
inline constexpr uint32_t kAllLanes = 0xffffffffu;

}  // namespace shale::kernels::cuda::simt
