#pragma once

#include <functional>
#include <memory>

#include "shale/kernels/fp8.h"
#include "shale/runtime/kernel_check/matmul_spec.h"
#include "shale/runtime/tensor/device_backend.h"

namespace shale::kernel_check {

// A GEMM of the vendor's library, c = a b or c += a b, on the device's stream.
using VendorProduct = std::function<void(const void* a, const void* b, void* c)>;

// Device and stream on which cases run.
class KernelDevice {
 public:
  // The backend must outlive this object; the caller owns the stream. threads: number of CPU
  // threads of a kernel.
  KernelDevice(DeviceBackend& backend, void* stream, int threads)
      : backend_(backend), stream_(stream), threads_(threads) {}
  virtual ~KernelDevice() = default;
  KernelDevice(const KernelDevice&) = delete;
  KernelDevice& operator=(const KernelDevice&) = delete;

  DeviceBackend& backend() const { return backend_; }
  Device device() const { return backend_.device(); }
  void* stream() const { return stream_; }
  int threads() const { return threads_; }
  void synchronize() const { backend_.synchronize(stream_); }

  // Returns how many bytes of other operands must be used before a call uses the same operands
  // again, so that caches no longer contain them. 1: calls may always use the same operands.
  virtual int64_t rotation_bytes() const { return 1; }
  // Returns a GEMM by the vendor's library; null if it does not support this GEMM.
  virtual VendorProduct vendor_product(const MatmulSpec&) { return nullptr; }
  // Returns a GEMM with bias, GELU or GELU gradient by the vendor's library; null if there is no
  // such library. It uses the library's own epilogues, which round differently from kernels::gemm:
  // GELU is applied to the f32 pre-activation, and a bias gradient has a's dtype.
  virtual std::function<void(const kernels::GemmArgs&)> vendor_gemm() { return nullptr; }

  // Returns an fp8 GEMM by the vendor's library for arguments of these shapes and dtypes; null if
  // not supported.
  virtual std::function<void(const kernels::Fp8GemmArgs&)> vendor_fp8_gemm(
      const kernels::Fp8GemmArgs&) {
    return nullptr;
  }

 private:
  DeviceBackend& backend_;
  void* stream_;
  int threads_;
};

// A buffer in device memory.
class DeviceMemory {
 public:
  DeviceMemory(KernelDevice& device, size_t bytes);  // fills the memory with zeros
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  KernelDevice& device_;
  size_t bytes_;
  void* data_ = nullptr;
};

// Scratch memory of kernels; grows to the largest requested size.
class DeviceWorkspace final : public Workspace {
 public:
  explicit DeviceWorkspace(KernelDevice& device) : device_(device) {}
  void* reserve(size_t bytes) override;

 private:
  KernelDevice& device_;
  std::unique_ptr<DeviceMemory> memory_;
};

}  // namespace shale::kernel_check
