#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "shale/base/device.h"

namespace shale {

// Name and driver of a GPU, from NVML, such as "NVIDIA H100 80GB HBM3" and "580.65.06".
struct GpuIdentity {
  std::string model, driver;
};
// pci_bus_id: an element of GpuList::ids. Throws UnavailableError.
GpuIdentity gpu_identity(const std::string& pci_bus_id);

// Sensors of a GPU, read twice a second by the driver's library NVML, which is loaded at run time.
class GpuSensors {
 public:
  // Sums over all readings, and the newest values. The difference of two sums gives the mean over
  // the time between them.
  struct Totals {
    double readings = 0;
    // sum of the fraction of time before each reading in which kernels ran, 0 to 1
    double busy = 0;
    double watts = 0;
    double celsius = 0;  // newest temperature
    // newest value: memory used by all processes on the GPU and by the driver
    double used_bytes = 0;
  };

  // Returns null if the device is not a GPU. Returns null, with the reason in the log, if NVML is
  // missing or does not know the GPU. The environment variable SHALE_NVML names another file to
  // load, or is "off".
  static std::unique_ptr<GpuSensors> of(const Device& device);
  // pci_bus_id: an element of GpuList::ids. Throws UnavailableError.
  explicit GpuSensors(const std::string& pci_bus_id);
  ~GpuSensors();
  GpuSensors(const GpuSensors&) = delete;
  GpuSensors& operator=(const GpuSensors&) = delete;

  Totals read();  // takes a reading now and includes it

 private:
  void take_reading();
  void run();

  void* gpu_ = nullptr;
  std::mutex mutex_;
  std::condition_variable ends_;
  bool ended_ = false;
  Totals totals_;
  std::thread thread_;
};

}  // namespace shale
