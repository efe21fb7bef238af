#include "shale/runtime/tensor/device_backend.h"

#include "shale/base/error.h"
#include "shale/runtime/tensor/out_of_memory.h"

namespace shale {

void DeviceBackend::begin_capture(void*) {
  throw UnavailableError(cat("capture: ", device(),
                             " has no streams whose work could be captured, expected cuda or emu"));
}

std::unique_ptr<DeviceGraph> DeviceBackend::end_capture(void*) {
  throw InternalError(cat("capture: end_capture() without begin_capture() on ", device()));
}

bool DeviceBackend::captures(void*) const {
  return false;
}

GpuList visible_gpus() {
#ifdef SHALE_HAVE_CUDA
  return visible_cuda_gpus();
#else
  return {.why_none = "this build is without CUDA"};
#endif
}

std::optional<int64_t> free_memory(const Device& device) {
#ifdef SHALE_HAVE_CUDA
  if (device.type == DeviceType::kCuda) return free_cuda_memory(device);
#endif
  static_cast<void>(device);
  return {};
}

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
