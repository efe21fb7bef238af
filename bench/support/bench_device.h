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

// What the vendor's library makes of a product: c = a b (+ c) on the stream of the device.
using VendorProduct = std::function<void(const void* a, const void* b, void* c)>;

// Where kernels are timed: one implementation per device type. It owns a stream.
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

  // Seconds per call of fn, which queues work on stream(), over so many calls in a row. As the
  // device sees it: on a GPU without the time that the host takes to queue the work, unless the
  // device waits for it.
  virtual double seconds_per_call(int calls, const std::function<void()>& fn) = 0;
  // Shortest measurement that the clock can be trusted with.
  virtual double shortest_sample_s() const { return 0; }

  // So many bytes of operands must go by before a call meets the same again, so that none is found
  // in a cache.
  virtual int64_t rotation_bytes() const = 0;
  // What the machine can do, measured just now, about `seconds` per number, with nothing of
  // Shale's.
  virtual Peaks measure_peaks(double seconds) = 0;

  // The library that kernels are set beside: "oneDNN"; empty where there is none.
  virtual std::string vendor_name() const { return ""; }
  // Null where the library has no such product.
  virtual VendorProduct vendor_product(const MatmulSpec&) { return nullptr; }

  // A product with bias, GELU or the gradient of GELU by the library's own epilogues, which round
  // otherwise than kernels::gemm: GELU is taken of the f32 pre-activation, a bias gradient has a's
  // dtype. Null where there is no such library.
  virtual std::function<void(const kernels::GemmArgs&)> vendor_gemm() { return nullptr; }

  // A product of fp8 of arguments like these, without bias and residual. Null where the library has
  // no such product.
  virtual std::function<void(const kernels::Fp8GemmArgs&)> vendor_fp8_gemm(
      const kernels::Fp8GemmArgs&) {
    return nullptr;
  }

  // Adds what is known of the device to the description of the machine.
  virtual void describe(Machine& machine) const = 0;

 protected:
  BenchDevice(std::unique_ptr<DeviceBackend> backend, int threads);
  static int64_t several_caches(int64_t cache_bytes);  // at least 128 MiB, at most 1 GiB

 private:
  std::unique_ptr<DeviceBackend> backend_;
  void* stream_;
  int threads_;
};

// What --device takes: "cpu", "cuda", "emu", which is emu:90, and emulated_names().
std::vector<std::string> device_names();
Device device_named(const std::string& name);  // one of them

// `threads`: CPU threads of a kernel, or of the emulator. Throws UnavailableError where this build
// or machine lacks the device.
std::unique_ptr<BenchDevice> make_bench_device(const Device& device, int threads);
// One per device type, for make_bench_device().
std::unique_ptr<BenchDevice> make_cpu_bench(int threads);
std::unique_ptr<BenchDevice> make_emu_bench(const Device& device, int threads);
std::unique_ptr<BenchDevice> make_cuda_bench(const Device& device);

// Device memory.
class DeviceMemory {
 public:
  DeviceMemory(BenchDevice& device, size_t bytes);  // zeroed
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

// Scratch memory of kernels: grows to the most that was asked for.
class DeviceWorkspace final : public Workspace {
 public:
  explicit DeviceWorkspace(BenchDevice& device) : device_(device) {}
  void* reserve(size_t bytes) override;

 private:
  BenchDevice& device_;
  std::unique_ptr<DeviceMemory> memory_;
};

}  // namespace shale::bench
