#include "shale/runtime/tensor/gpu_sensors.h"

#include <dlfcn.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <string_view>

#include "shale/base/error.h"
#include "shale/base/log.h"
#include "shale/runtime/tensor/device_backend.h"

namespace shale {
namespace {

// The part of NVML's C interface (nvml.h) that is used here; it is the same in all versions. It is
// declared here, so that the build does not need the header.
using Result = int;  // nvmlReturn_t; 0: success
struct Utilization {
  unsigned gpu, memory;  // percent
};
struct Memory {
  unsigned long long total, free, used;  // bytes
};
constexpr int kOfGpu = 0;  // nvmlTemperatureSensors_t

struct Nvml {
  Result (*init)();
  const char* (*error_text)(Result);
  Result (*find)(const char* pci_bus_id, void** gpu);
  Result (*utilization)(void* gpu, Utilization*);
  Result (*power)(void* gpu, unsigned* milliwatts);
  Result (*temperature)(void* gpu, int sensor, unsigned* celsius);
  Result (*memory)(void* gpu, Memory*);
  Result (*name)(void* gpu, char* text, unsigned bytes);
  Result (*driver)(char* text, unsigned bytes);
};

void check(const Nvml& nvml, Result result, const char* what) {
  if (result != 0) throw UnavailableError(cat("nvml: ", what, ": ", nvml.error_text(result)));
}

// Loads NVML. It is never unloaded.
Nvml load() {
  const char* const wish = std::getenv("SHALE_NVML");
  const char* const name = wish != nullptr && *wish != '\0' ? wish : "libnvidia-ml.so.1";
  void* const library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw UnavailableError(cat("nvml: cannot load ", dlerror()));
  Nvml nvml{};
  const auto find = [&](auto& function, const char* symbol) {
    function =
        reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, symbol));
    if (function == nullptr) throw UnavailableError(cat("nvml: ", name, " lacks ", symbol));
  };
  find(nvml.init, "nvmlInit_v2");
  find(nvml.error_text, "nvmlErrorString");
  find(nvml.find, "nvmlDeviceGetHandleByPciBusId_v2");
  find(nvml.utilization, "nvmlDeviceGetUtilizationRates");
  find(nvml.power, "nvmlDeviceGetPowerUsage");
  find(nvml.temperature, "nvmlDeviceGetTemperature");
  find(nvml.memory, "nvmlDeviceGetMemoryInfo");
  find(nvml.name, "nvmlDeviceGetName");
  find(nvml.driver, "nvmlSystemGetDriverVersion");
  check(nvml, nvml.init(), "nvmlInit_v2");
  return nvml;
}

const Nvml& nvml() {
  static const Nvml once = load();
  return once;
}

}  // namespace

std::unique_ptr<GpuSensors> GpuSensors::of(const Device& device) {
  const char* const wish = std::getenv("SHALE_NVML");
  if (device.type != DeviceType::kCuda || (wish != nullptr && std::string_view(wish) == "off")) {
    return nullptr;
  }
  try {
    return std::make_unique<GpuSensors>(visible_gpus().ids.at(static_cast<size_t>(device.index)));
  } catch (const std::exception& error) {
    log_info("the GPU's utilization, power and temperature cannot be read: ", error.what());
    return nullptr;
  }
}

GpuIdentity gpu_identity(const std::string& pci_bus_id) {
  void* gpu = nullptr;
  std::array<char, 128> model{}, driver{};
  constexpr unsigned kBytes = model.size() - 1;
  check(nvml(), nvml().find(pci_bus_id.c_str(), &gpu), "nvmlDeviceGetHandleByPciBusId_v2");
  check(nvml(), nvml().name(gpu, model.data(), kBytes), "nvmlDeviceGetName");
  check(nvml(), nvml().driver(driver.data(), kBytes), "nvmlSystemGetDriverVersion");
  return {.model = model.data(), .driver = driver.data()};
}

GpuSensors::GpuSensors(const std::string& pci_bus_id) {
  check(nvml(), nvml().find(pci_bus_id.c_str(), &gpu_), "nvmlDeviceGetHandleByPciBusId_v2");
  thread_ = std::thread([this] { run(); });
}

GpuSensors::~GpuSensors() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  ends_.notify_all();
  thread_.join();
}

GpuSensors::Totals GpuSensors::read() {
  const std::lock_guard lock(mutex_);
  take_reading();
  return totals_;
}

// If the GPU lacks a sensor, its value is NaN. Passively cooled and shared GPUs lack some.
void GpuSensors::take_reading() {
  constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  Utilization utilization{};
  Memory memory{};
  unsigned milliwatts = 0, celsius = 0;
  ++totals_.readings;
  totals_.busy += nvml().utilization(gpu_, &utilization) == 0 ? utilization.gpu / 100.0 : kUnknown;
  totals_.watts += nvml().power(gpu_, &milliwatts) == 0 ? milliwatts / 1e3 : kUnknown;
  totals_.celsius = nvml().temperature(gpu_, kOfGpu, &celsius) == 0 ? celsius : kUnknown;
  totals_.used_bytes =
      nvml().memory(gpu_, &memory) == 0 ? static_cast<double>(memory.used) : kUnknown;
}

void GpuSensors::run() {
  std::unique_lock lock(mutex_);
  while (!ended_) {
    take_reading();
    ends_.wait_for(lock, std::chrono::milliseconds(500), [this] { return ended_; });
  }
}

}  // namespace shale
