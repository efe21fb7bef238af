#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "shale/bench/support/machine.h"
#include "shale/bench/support/matmul_spec.h"
#include "shale/bench/support/peaks.h"
#include "shale/kernels/fp8.h"
#include "shale/runtime/tensor/device_backend.h"

namespace shale::bench {

// GEMM of the vendor's library, c = a b (+ c), on the device's stream.
using VendorProduct = std::function<void(const void* a, const void* b, void* c)>;

// Device on which kernels are timed, with one implementation per device type. It owns a stream.
class BenchDevice {
 public:
  virtual ~BenchDevice();
  BenchDevice(const BenchDevice&) = delete;
  BenchDevice& operator=(const BenchDevice&) = delete;

  DeviceBackend& backend() const { return *backend_; }
  Device device() const { return backend_->device(); }
  void* stream() const { return stream_; }
  int threads() const { return threads_; }
  void synchronize() const { backend_->synchronize(stream_); }

  // Returns the seconds per call of fn, which launches work on stream(), over `calls` calls in a
  // row, in device time: on a GPU, host time for launches counts only if the device waits for it.
  virtual double seconds_per_call(int calls, const std::function<void()>& fn) = 0;
  // Returns the shortest duration that the clock measures reliably.
  virtual double shortest_sample_s() const { return 0; }

  // Returns the bytes of operands that must be used before the same ones are used again, so that
  // caches do not contain them.
  virtual int64_t rotation_bytes() const = 0;
  // Measures the machine's peaks, for about `seconds` each, without any of Shale's kernels.
  virtual Peaks measure_peaks(double seconds) = 0;

  // Returns the library that kernels are compared with: "oneDNN"; empty if there is none.
  virtual std::string vendor_name() const { return ""; }
  // Returns a GEMM by the vendor's library; null if it does not support this GEMM.
  virtual VendorProduct vendor_product(const MatmulSpec&) { return nullptr; }

  // Returns a GEMM with bias, GELU or GELU gradient, using the library's own epilogues. Their
  // rounding differs from kernels::gemm: GELU is applied to the f32 pre-activation, and a bias
  // gradient has a's dtype. Null if there is no such library.
  virtual std::function<void(const kernels::GemmArgs&)> vendor_gemm() { return nullptr; }

  // Returns an fp8 GEMM for arguments like these, without bias and residual. Null if not supported.
  virtual std::function<void(const kernels::Fp8GemmArgs&)> vendor_fp8_gemm(
      const kernels::Fp8GemmArgs&) {
    return nullptr;
  }

  // Adds the device's properties to the description of the machine.
  virtual void describe(Machine& machine) const = 0;

 protected:
  BenchDevice(std::unique_ptr<DeviceBackend> backend, int threads);
  static int64_t several_caches(int64_t cache_bytes);  // returns 128 MiB to 1 GiB

 private:
  std::unique_ptr<DeviceBackend> backend_;
  void* stream_;
  int threads_;
};

// Returns the values of --device: "cpu", "cuda", "emu", which is emu:90, and those of
// emulated_names().
std::vector<std::string> device_names();
Device device_named(const std::string& name);  // returns the device with one of these names

// Makes the device. `threads`: CPU threads of a kernel, or of the emulator. Throws UnavailableError
// if this build or machine lacks the device.
std::unique_ptr<BenchDevice> make_bench_device(const Device& device, int threads);
// These functions implement make_bench_device(), one per device type.
std::unique_ptr<BenchDevice> make_cpu_bench(int threads);
std::unique_ptr<BenchDevice> make_emu_bench(const Device& device, int threads);
std::unique_ptr<BenchDevice> make_cuda_bench(const Device& device);

// A buffer in device memory.
class DeviceMemory {
 public:
  DeviceMemory(BenchDevice& device, size_t bytes);  // fills the memory with zeros
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  BenchDevice& device_;
  size_t bytes_;
  void* data_ = nullptr;
};

// Scratch memory of kernels; grows to the largest requested size.
class DeviceWorkspace final : public Workspace {
 public:
  explicit DeviceWorkspace(BenchDevice& device) : device_(device) {}
  void* reserve(size_t bytes) override;

 private:
  BenchDevice& device_;
  std::unique_ptr<DeviceMemory> memory_;
};

}  // namespace shale::bench
