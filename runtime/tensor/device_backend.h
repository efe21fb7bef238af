#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "shale/base/device.h"
#include "shale/base/reserved_sms.h"
#include "shale/runtime/tensor/memory_provider.h"

namespace shale {

class Tracer;
namespace emulator {
struct Options;
}

// Captured work of a stream, such as a CUDA graph, that can be queued again as a whole. Must not
// outlive its backend.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  virtual void launch(void* stream) = 0;
};

// Everything that the runtime needs from a device besides kernels: memory, streams, events, copies.
// Handles are opaque; a null stream is the device's default stream. Each device type implements
// this.
class DeviceBackend {
 public:
  virtual ~DeviceBackend() = default;

  virtual Device device() const = 0;
  // Compute capability, times ten, for which the kernels are compiled; 0 on the CPU. It is lower
  // than the device's own if the GPU is newer than all targets of this build, so that the driver
  // JIT-compiles the kernels.
  virtual int kernel_arch() const { return device().arch; }
  virtual MemoryProvider& memory() = 0;       // the device's own memory
  virtual MemoryProvider& host_memory() = 0;  // host memory with the fastest copies (pinned)

  // Makes copies from and to this host memory as fast as those of host_memory(), until unpin() or
  // the end of the device. The caller owns the memory and must keep it until then.
  virtual void pin(void* memory, size_t bytes) = 0;
  virtual void unpin(void* memory) noexcept = 0;

  // True if kernels of this device can access the memory. The CPU cannot tell, and returns true.
  virtual bool reaches(const void* /*memory*/) const { return true; }

  virtual void* create_stream() = 0;
  // Creates a stream whose ready work runs before that of other streams, if the device supports
  // priorities. For example for a collective that other ranks wait for.
  virtual void* create_urgent_stream() { return create_stream(); }
  virtual void destroy_stream(void* stream) noexcept = 0;
  virtual void synchronize(void* stream) = 0;

  virtual void* record_event(void* stream) = 0;
  // makes the stream wait; the host continues
  virtual void wait_event(void* stream, void* event) = 0;
  virtual bool event_done(void* event) = 0;
  virtual void synchronize_event(void* event) = 0;
  virtual void destroy_event(void* event) noexcept = 0;

  // Copies between host and device memory in any direction, in stream order. Pageable host memory
  // is read or written before this returns. Device memory and pinned memory are read or written
  // when the stream reaches the copy.
  virtual void copy(void* to, const void* from, size_t bytes, void* stream) = 0;

  // Starts a capture: until end_capture(), work queued on `stream` is recorded into a graph and not
  // run. So is the work of other streams that wait for one of its events; `stream` must wait for
  // them before the end. During a capture the host must not wait for captured work, query its
  // events, or copy from or to pageable host memory; these are errors. Throws UnavailableError on a
  // device without streams.
  virtual void begin_capture(void* stream);
  virtual std::unique_ptr<DeviceGraph> end_capture(void* stream);
  // True if work queued on `stream` is being captured.
  virtual bool captures(void* stream) const;

  // Number of SMs of this device, and number of SMs that collectives reserve.
  ReservedSms& held() { return held_; }

  // Tracer that shows kernels and phases by name in the device's profiler; null without a profiler.
  virtual Tracer* tracer() { return nullptr; }

  // ---- For libraries of the device's vendor ----

  // Makes this device the current device of the calling thread.
  virtual void use() const {}
  // Calls `allocate`, with which another library allocates memory of this device, and returns its
  // result. `allocate` returns null on failure. May be called during a capture. The device knows
  // the memory until disown().
  virtual void* adopt(size_t, const std::function<void*()>& allocate) { return allocate(); }
  virtual void disown(void*) noexcept {}
  // False if dependent launches (Exec::dependent_launch) cannot be captured.
  virtual bool captures_dependent_launch() const { return true; }

 private:
  ReservedSms held_;
};

// The GPUs that this process may use. ids[i] identifies GPU i on its machine, such as
// "0000:17:00.0" (PCI bus id). If there are no GPUs, why_none gives the reason.
struct GpuList {
  std::vector<std::string> ids{};
  std::string why_none{};
};
GpuList visible_gpus();
GpuList visible_cuda_gpus();  // only in builds with CUDA

std::unique_ptr<DeviceBackend> make_cpu_backend();

// Makes the backend of a GPU. Throws UnavailableError if the GPU or its driver is missing.
std::unique_ptr<DeviceBackend> make_cuda_backend(const Device& device);

// Makes the backend of the emulated GPU; arch 0 means 90. The options set the order in which queued
// work and a block's threads run; default: from the environment (kernels/simt/engine/options.h).
std::unique_ptr<DeviceBackend> make_emu_backend(const Device& device);
std::unique_ptr<DeviceBackend> make_emu_backend(const Device& device,
                                                const emulator::Options& options);

// Makes the backend of `device`. Throws UnavailableError if this build or machine lacks it.
std::unique_ptr<DeviceBackend> make_backend(const Device& device);

}  // namespace shale
