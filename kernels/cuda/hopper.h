#pragma once

#include "shale/base/device.h"

namespace shale::kernels {

// Whether the kernels of sm90/ run there: their code is for compute capability 9.0 alone. Elsewhere
// the portable ones do.
inline bool is_hopper(const Device& device) {
  return device.arch == 90;
}

}  // namespace shale::kernels
