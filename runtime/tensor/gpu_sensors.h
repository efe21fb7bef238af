#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "shale/base/device.h"

namespace shale {

// Name and driver of a GPU, from NVML: "NVIDIA H100 80GB HBM3", "580.65.06".
struct GpuIdentity {
  std::string model, driver;
};
// pci_bus_id: as in GpuList. Throws UnavailableError.
GpuIdentity gpu_identity(const std::string& pci_bus_id);

// Sensors of a GPU, read twice a second by the driver's library NVML, which is loaded at run time.
class GpuSensors {
 public:
  // Sums of all readings, whose differences give means over a time, and the newest values.
  struct Totals {
    double readings = 0;
    double busy = 0;  // share of the time before a reading in which kernels ran, 0 to 1
    double watts = 0;
    double celsius = 0;     // newest
    double used_bytes = 0;  // newest: memory of all processes on the GPU, drivers included
  };

  // Null, with a reason in the log, where NVML is missing or does not know the GPU, and on devices
  // that are no GPU. SHALE_NVML in the environment names another file to load, or is "off".
  static std::unique_ptr<GpuSensors> of(const Device& device);
  // pci_bus_id: as in GpuList. Throws UnavailableError.
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
