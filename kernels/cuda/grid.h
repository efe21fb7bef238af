#pragma once

#include "runtime/base/exec.h"

namespace shale::kernels {

// Multiprocessors of the GPUs that a compute capability is known for (H100 and H200; A100). A grid
// that is cut by it fills them; others it serves well enough. Results may depend on it, so it is no
// property of the single device.
inline int64_t multiprocessors(const Exec& exec) {
  return exec.device.arch >= 90 ? 132 : 108;
}

}  // namespace shale::kernels
