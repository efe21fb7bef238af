#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "shale/bench/support/machine.h"
#include "shale/bench/support/peaks.h"
#include "shale/runtime/kernel_check/kernel_device.h"

namespace shale::bench {

using namespace kernel_check;

// Device on which kernels are timed, with one implementation per device type. It owns a stream.
class BenchDevice : public KernelDevice {
 public:
  ~BenchDevice() override;

  // Returns the seconds per call of fn, which launches work on stream(). Calls fn `calls` times in
  // a row and measures device time: on a GPU, the host's time for launches counts only while the
  // device waits for it.
  virtual double seconds_per_call(int calls, const std::function<void()>& fn) = 0;
  // Returns the shortest duration that the clock measures reliably.
  virtual double shortest_sample_s() const { return 0; }

  // Measures the machine's peaks, for about `seconds` each, without any of Shale's kernels.
  virtual Peaks measure_peaks(double seconds) = 0;

  // Returns the name of the library that kernels are compared with, such as "oneDNN"; empty if
  // there is none.
  virtual std::string vendor_name() const { return ""; }
  // Adds the device's properties to the description of the machine.
  virtual void describe(Machine& machine) const = 0;

 protected:
  BenchDevice(std::unique_ptr<DeviceBackend> backend, int threads);
  static int64_t several_caches(int64_t cache_bytes);  // returns 128 MiB to 1 GiB

 private:
  std::unique_ptr<DeviceBackend> backend_;
};

// Returns the values of --device: "cpu", "cuda", "emu" (the same as "emu:90"), and
// emulated_names().
std::vector<std::string> device_names();
Device device_named(const std::string& name);  // returns the device with a name from device_names()

// Makes the device. `threads`: CPU threads of a kernel, or of the emulator. Throws UnavailableError
// if this build or machine lacks the device.
std::unique_ptr<BenchDevice> make_bench_device(const Device& device, int threads);
// Implementations of make_bench_device() for each device type.
std::unique_ptr<BenchDevice> make_cpu_bench(int threads);
std::unique_ptr<BenchDevice> make_emu_bench(const Device& device, int threads);
std::unique_ptr<BenchDevice> make_cuda_bench(const Device& device);

}  // namespace shale::bench
