#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "shale/base/device.h"
#include "shale/base/held_multiprocessors.h"
#include "shale/runtime/tensor/memory_provider.h"

namespace shale {

class Tracer;
namespace emulator {
struct Options;
}

// Work of a stream, captured once, that can be queued as a whole any number of times. Must not
// outlive its backend.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  virtual void launch(void* stream) = 0;
};

// What the runtime needs from a device besides kernels: memory, streams, events, copies. Handles
// are opaque; stream null is the device's default stream. One implementation per device type.
class DeviceBackend {
 public:
  virtual ~DeviceBackend() = default;

  virtual Device device() const = 0;
  // Compute capability times ten that its kernels are compiled for; 0 on the CPU. Less than the
  // device's where the driver compiles kernels for a GPU that is newer than this build's.
  virtual int kernel_arch() const { return device().arch; }
  virtual MemoryProvider& memory() = 0;       // the device's own memory
  virtual MemoryProvider& host_memory() = 0;  // host memory that copies reach fastest (pinned)

  // Copies reach this host memory as they reach host_memory()'s, until unpin() or the device's end.
  // It comes from elsewhere and outlives that.
  virtual void pin(void* memory, size_t bytes) = 0;
  virtual void unpin(void* memory) noexcept = 0;

  virtual void* create_stream() = 0;
  // One whose work a device that can prefers to what other streams have ready, such as a
  // collective that holds up other ranks.
  virtual void* create_urgent_stream() { return create_stream(); }
  virtual void destroy_stream(void* stream) noexcept = 0;
  virtual void synchronize(void* stream) = 0;

  virtual void* record_event(void* stream) = 0;
  virtual void wait_event(void* stream, void* event) = 0;  // the stream waits, not the host
  virtual bool event_done(void* event) = 0;
  virtual void synchronize_event(void* event) = 0;
  virtual void destroy_event(void* event) noexcept = 0;

  // Copies between host and device memory in any direction, in stream order. Ordinary host memory
  // is read, and written, before this returns; device memory and pinned memory when the stream gets
  // there.
  virtual void copy(void* to, const void* from, size_t bytes, void* stream) = 0;

  // From here to end_capture() what `stream` is given is kept for a graph instead of run; so is
  // what other streams are given that wait for one of its events. `stream` waits for those before
  // the end. The host may neither wait for captured work nor ask for its events, nor copy from or
  // to ordinary host memory: those are errors. Throws UnavailableError on a device without streams.
  virtual void begin_capture(void* stream);
  virtual std::unique_ptr<DeviceGraph> end_capture(void* stream);
  // Whether what `stream` is given now is captured.
  virtual bool captures(void* stream) const;

  // What collectives hold of it.
  HeldMultiprocessors& held() { return held_; }

  // Shows kernels and phases to the device's profiler, by name; null where there is none.
  virtual Tracer* tracer() { return nullptr; }

 private:
  HeldMultiprocessors held_;
};

// The GPUs that this process may use, by index: what tells each from the others of its machine,
// such as "0000:17:00.0". Where there are none, why.
struct GpuList {
  std::vector<std::string> ids{};
  std::string why_none{};
};
GpuList visible_gpus();
GpuList visible_cuda_gpus();  // only in builds with CUDA

std::unique_ptr<DeviceBackend> make_cpu_backend();

// A GPU. Throws UnavailableError if it, or its driver, is not there. Only in builds with CUDA.
std::unique_ptr<DeviceBackend> make_cuda_backend(const Device& device);

// The emulated GPU; arch 0 means 90. The order in which queued work and the threads of a block run
// comes from the options, by default those of the environment (kernels/simt/engine/options.h).
std::unique_ptr<DeviceBackend> make_emu_backend(const Device& device);
std::unique_ptr<DeviceBackend> make_emu_backend(const Device& device,
                                                const emulator::Options& options);

// The backend of `device`. Throws UnavailableError when this build or machine lacks it.
std::unique_ptr<DeviceBackend> make_backend(const Device& device);

}  // namespace shale
