#pragma once

#include <initializer_list>
#include <vector>

#include "shale/test/support/kernels.h"

namespace shale::test {

// devices_with(), and with them the emulator as a GPU of which a block has as little shared memory
// as on any, an RTX 5090: for kernels that then go about it in another way.
inline std::vector<Exec> devices_of_all_limits(
    std::initializer_list<const kernels::SlotBase*> slots) {
  std::vector<Exec> execs = devices_with(slots);
  for (Exec exec : devices_with(slots)) {
    if (exec.device != Device{.type = DeviceType::kEmu, .arch = 90}) continue;
    exec.device.arch = 120;
    execs.push_back(exec);
  }
  return execs;
}

}  // namespace shale::test
