#pragma once

#include <string>

#include "shale/base/error.h"

namespace shale::comm {

// Oldest supported version of NCCL, 2.26.2, as ncclGetVersion() returns it. From it on,
// ncclMemAlloc rounds a size up to 2 MiB. On GPUs behind an NVSwitch, older versions round up to
// 512 MiB, the granularity of multicast objects.
inline constexpr int kOldestNccl = 22602;

// Returns "2.26.2" for 22602.
inline std::string nccl_version_text(int version) {
  return cat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

}  // namespace shale::comm
