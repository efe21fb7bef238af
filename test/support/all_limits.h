#pragma once

#include <initializer_list>
#include <vector>

#include "shale/test/support/kernels.h"

namespace shale::test {

// Returns devices_with(), and in addition emulated GPUs whose blocks have less shared memory: an
// RTX 5090 and a T4. Some kernels use other algorithms there.
inline std::vector<Exec> devices_of_all_limits(
    std::initializer_list<const kernels::SlotBase*> slots) {
  std::vector<Exec> execs = devices_with(slots);
  for (Exec exec : devices_with(slots)) {
    if (exec.device != Device{.type = DeviceType::kEmu, .arch = 90}) continue;
    for (const int arch : {120, 75}) {
      exec.device.arch = arch;
      exec.dependent_launch = arch >= 90;
      execs.push_back(exec);
    }
  }
  return execs;
}

}  // namespace shale::test
