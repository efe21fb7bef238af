// The factory of devices to time kernels on: what is in this build.
#include "shale/base/error.h"
#include "shale/bench/support/bench_device.h"

namespace shale::bench {

std::vector<std::string> device_names() {
  return {"cpu", "cuda", "emu", "emu:80", "emu:90"};
}

Device device_named(const std::string& name) {
  if (name == "cuda") return {.type = DeviceType::kCuda};
  if (name == "emu:80") return {.type = DeviceType::kEmu, .arch = 80};
  if (name == "emu" || name == "emu:90") return {.type = DeviceType::kEmu, .arch = 90};
  return {};
}

std::unique_ptr<BenchDevice> make_bench_device(const Device& device, int threads) {
  switch (device.type) {
    case DeviceType::kCpu:
#ifdef SHALE_HAVE_CPU_KERNELS
      return make_cpu_bench(threads);
#else
      break;
#endif
    case DeviceType::kEmu: return make_emu_bench(device, threads);
    case DeviceType::kCuda:
#ifdef SHALE_HAVE_CUDA
      return make_cuda_bench(device);
#else
      break;
#endif
  }
  throw UnavailableError(cat("device: ", device, " is not part of this build"));
}

}  // namespace shale::bench
