#pragma once

#include "shale/base/device.h"
#include "shale/kernels/simt/backend.h"

namespace shale::kernels::SHALE_BACKEND::simt {

// Device type whose kernels this build of a kernel file registers: the GPU or the emulator.
#ifdef __CUDACC__
inline constexpr DeviceType kDevice = DeviceType::kCuda;
#else
inline constexpr DeviceType kDevice = DeviceType::kEmu;
#endif

}  // namespace shale::kernels::SHALE_BACKEND::simt
