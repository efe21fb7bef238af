#pragma once

#include <vector>

#include "shale/base/error.h"
#include "shale/test/support/kernels.h"

namespace shale::test {

inline bool is_gpu(const Exec& exec) {
  return exec.device.type != DeviceType::kCpu;
}
// Returns the GPUs in `execs`, emulated and real. If `gpu` is false, returns all other devices.
inline std::vector<Exec> only_gpus(std::vector<Exec> execs, bool gpu = true) {
  std::erase_if(execs, [gpu](const Exec& exec) { return is_gpu(exec) != gpu; });
  return execs;
}
// Returns the devices of compute capability 9.0. Throws InternalError if there is none.
inline std::vector<Exec> only_hopper(std::vector<Exec> execs) {
  std::erase_if(execs, [](const Exec& exec) { return exec.device.arch != 90; });
  if (execs.empty()) throw InternalError("no device of compute capability 9.0, not even emulated");
  return execs;
}

}  // namespace shale::test
