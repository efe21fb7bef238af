#pragma once

#include "shale/base/device.h"

namespace shale::kernels {

// Returns whether the Hopper kernels can run on a device: they are compiled for compute capability
// 9.0 only. Other devices use the portable kernels.
inline bool is_hopper(const Device& device) {
  return device.arch == 90;
}

}  // namespace shale::kernels
