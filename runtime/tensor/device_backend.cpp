#include "runtime/tensor/device_backend.h"

#include "runtime/base/error.h"

namespace shale {

std::unique_ptr<DeviceBackend> make_backend(const Device& device) {
  switch (device.type) {
    case DeviceType::kCpu: return make_cpu_backend();
    case DeviceType::kEmu:
#ifdef SHALE_HAVE_EMULATOR
      return make_emu_backend(device);
#else
      break;
#endif
    case DeviceType::kCuda:
#ifdef SHALE_HAVE_CUDA
      return make_cuda_backend(device);
#else
      break;
#endif
  }
  std::string built = "cpu";
#ifdef SHALE_HAVE_EMULATOR
  built += ", emu";
#endif
#ifdef SHALE_HAVE_CUDA
  built += ", cuda";
#endif
  throw UnavailableError(cat("device: ", device, " is not part of this build, which has: ", built));
}

}  // namespace shale
