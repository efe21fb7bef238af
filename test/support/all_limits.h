#pragma once

#include <initializer_list>
#include <vector>

#include "shale/test/support/kernels.h"

namespace shale::test {

// devices_with(), and with them the emulator as GPUs of which a block has less shared memory, an
// RTX 5090 and a T4: for kernels that then go about it in another way.
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
