#include "runtime/tensor/device_backend.h"

#include "runtime/base/error.h"

namespace shale {

std::unique_ptr<DeviceBackend> make_backend(const Device& device) {
  switch (device.type) {
    case DeviceType::kCpu: return make_cpu_backend();
    case DeviceType::kEmu: return make_emu_backend(device);
    case DeviceType::kCuda: break;
  }
  throw UnavailableError(
      cat("device: ", device, " is not part of this build, which has: cpu, emu"));
}

}  // namespace shale
