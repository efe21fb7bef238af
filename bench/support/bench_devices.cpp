// Creates the devices that this build has.
#include "shale/base/error.h"
#include "shale/base/gpu_model.h"
#include "shale/bench/support/bench_device.h"

namespace shale::bench {

std::vector<std::string> device_names() {
  std::vector<std::string> names = {"cpu", "cuda", "emu"};
  for (std::string& name : emulated_names()) names.push_back(std::move(name));
  return names;
}

Device device_named(const std::string& name) {
  if (name == "cuda") return {.type = DeviceType::kCuda};
  if (name == "emu") return emulated_device("emu:90");
  return name == "cpu" ? Device{} : emulated_device(name);
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
