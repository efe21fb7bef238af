// A GPU as a device. Compiled only in builds with CUDA; needs the driver only when a backend is
// made.
#include <cuda_runtime.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <string>

#include "shale/base/error.h"
#include "shale/base/gpu_model.h"
#include "shale/base/host_memory.h"
#include "shale/base/log.h"
#include "shale/kernels/registry.h"
#include "shale/kernels/simt/cuda/cuda_error.h"
#include "shale/runtime/tensor/device_backend.h"
#include "shale/runtime/tensor/handle_pool_internal.h"
#include "shale/runtime/tensor/nvtx_ranges_internal.h"
#include "shale/runtime/tensor/out_of_memory.h"
#include "shale/runtime/tensor/upload_ring_internal.h"

namespace shale {
namespace {

using kernels::cuda::check;

constexpr size_t kUploadRingBytes = size_t{1} << 20;

// Error check that logs instead of throwing, for destructors.
void check_quietly(cudaError_t result, const char* what) noexcept {
  // At program exit the driver may end before the last tensor is destroyed; this is no error.
  if (result == cudaSuccess || result == cudaErrorCudartUnloading) return;
  log_warning("cuda: ", what, ": ", cudaGetErrorString(result));
}

int attribute(cudaDeviceAttr which, int index) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, which, index), "cudaDeviceGetAttribute");
  return value;
}

// Scope in which this thread may make calls that CUDA considers unsafe during a capture, such as
// cudaMalloc. The captured work does not depend on these calls.
class RelaxedCapture {
 public:
  RelaxedCapture() {
    check(cudaThreadExchangeStreamCaptureMode(&mode_), "cudaThreadExchangeStreamCaptureMode");
  }
  ~RelaxedCapture() {
    check_quietly(cudaThreadExchangeStreamCaptureMode(&mode_),
                  "cudaThreadExchangeStreamCaptureMode");
  }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

class DeviceMemory final : public MemoryProvider {
 public:
  explicit DeviceMemory(int index) : index_(index) {}
  void* allocate(size_t bytes) override {
    void* memory = nullptr;
    check(cudaSetDevice(index_), "cudaSetDevice");
    const RelaxedCapture relaxed;
    check(cudaMalloc(&memory, bytes), "cudaMalloc");
    return memory;
  }
  void free(void* memory, size_t) noexcept override { check_quietly(cudaFree(memory), "cudaFree"); }

 private:
  int index_;
};

class PinnedMemory final : public MemoryProvider {
 public:
  explicit PinnedMemory(int index) : index_(index) {}
  void* allocate(size_t bytes) override {
    void* memory = nullptr;
    check(cudaSetDevice(index_), "cudaSetDevice");
    const RelaxedCapture relaxed;
    require_host_memory(int64_t(bytes));
    check(cudaHostAlloc(&memory, bytes, cudaHostAllocPortable), "cudaHostAlloc");
    return memory;
  }
  void free(void* memory, size_t) noexcept override {
    check_quietly(cudaFreeHost(memory), "cudaFreeHost");
  }

 private:
  int index_;
};

class CudaGraph final : public DeviceGraph {
 public:
  explicit CudaGraph(cudaGraphExec_t graph) : graph_(graph) {}
  ~CudaGraph() override { check_quietly(cudaGraphExecDestroy(graph_), "cudaGraphExecDestroy"); }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;
  void launch(void* stream) override {
    check(cudaGraphLaunch(graph_, static_cast<cudaStream_t>(stream)), "cudaGraphLaunch");
  }

 private:
  cudaGraphExec_t graph_;
};

class CudaBackend final : public DeviceBackend {
 public:
  explicit CudaBackend(const Device& device)
      : device_(device),
        memory_(device.index),
        pinned_(device.index),
        events_([this] { return create_event(); }, destroy),
        uploads_(*this, kUploadRingBytes) {
    held().limit(attribute(cudaDevAttrMultiProcessorCount, device.index));
  }

  Device device() const override { return device_; }
  int kernel_arch() const override {
    use();
    return kernels::cuda::kernel_arch();
  }
  MemoryProvider& memory() override { return memory_; }
  MemoryProvider& host_memory() override { return pinned_; }

  void pin(void* memory, size_t bytes) override {
    use();
    check(cudaHostRegister(memory, bytes, cudaHostRegisterPortable), "cudaHostRegister");
  }
  void unpin(void* memory) noexcept override {
    check_quietly(cudaHostUnregister(memory), "cudaHostUnregister");
  }
  // CUDA's current device is per thread.
  void use() const override { check(cudaSetDevice(device_.index), "cudaSetDevice"); }
  void* adopt(size_t, const std::function<void*()>& allocate) override {
    use();
    const RelaxedCapture relaxed;
    void* const memory = allocate();
    if (memory == nullptr) cudaGetLastError();  // clears the error: later calls may succeed
    return memory;
  }

  bool reaches(const void* memory) const override {
    cudaPointerAttributes attributes{};
    check(cudaPointerGetAttributes(&attributes, memory), "cudaPointerGetAttributes");
    return attributes.type == cudaMemoryTypeManaged ||
           (attributes.type == cudaMemoryTypeDevice && attributes.device == device_.index);
  }

  void* create_stream() override { return create_stream_of(priorities().least); }
  void* create_urgent_stream() override { return create_stream_of(priorities().greatest); }
  void destroy_stream(void* stream) noexcept override {
    if (stream == nullptr) return;
    check_quietly(cudaStreamDestroy(as_stream(stream)), "cudaStreamDestroy");
  }
  void synchronize(void* stream) override {
    use();
    check(cudaStreamSynchronize(as_stream(stream)), "cudaStreamSynchronize");
  }

  void* record_event(void* stream) override {
    use();
    void* const event = events_.take();
    const cudaError_t result = cudaEventRecord(as_event(event), as_stream(stream));
    if (result != cudaSuccess) events_.give(event);
    check(result, "cudaEventRecord");
    return event;
  }
  void wait_event(void* stream, void* event) override {
    use();
    check(cudaStreamWaitEvent(as_stream(stream), as_event(event), 0), "cudaStreamWaitEvent");
  }
  bool event_done(void* event) override {
    const cudaError_t result = cudaEventQuery(as_event(event));
    if (result == cudaErrorNotReady) return false;
    check(result, "cudaEventQuery");
    return true;
  }
  void synchronize_event(void* event) override {
    check(cudaEventSynchronize(as_event(event)), "cudaEventSynchronize");
  }
  // Keeps the event for reuse. Recording it again does not affect streams that wait for its earlier
  // point.
  void destroy_event(void* event) noexcept override { events_.give(event); }

  void copy(void* to, const void* from, size_t bytes, void* stream) override {
    if (bytes == 0) return;
    use();
    if (captures(stream)) {
      refuse_ordinary_memory(to, from);
    } else if (uploads_.takes(bytes) && is_ordinary(from) && !is_ordinary(to)) {
      uploads_.upload(to, from, bytes, stream);
      return;
    }
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, as_stream(stream)),
          "cudaMemcpyAsync");
  }

  // Thread-local mode does not restrict other threads, such as a watchdog that queries its own
  // events.
  void begin_capture(void* stream) override {
    use();
    check(cudaStreamBeginCapture(as_stream(stream), cudaStreamCaptureModeThreadLocal),
          "cudaStreamBeginCapture");
    capturing_ = true;
  }
  std::unique_ptr<DeviceGraph> end_capture(void* stream) override {
    use();
    capturing_ = false;
    cudaGraph_t graph = nullptr;
    check(cudaStreamEndCapture(as_stream(stream), &graph), "cudaStreamEndCapture");
    cudaGraphExec_t executable = nullptr;
    const cudaError_t result = cudaGraphInstantiateWithFlags(&executable, graph, 0);
    check_quietly(cudaGraphDestroy(graph), "cudaGraphDestroy");
    check(result, "cudaGraphInstantiateWithFlags");
    return std::make_unique<CudaGraph>(executable);
  }
  bool captures(void* stream) const override {
    if (!capturing_ || stream == nullptr) return false;
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    check(cudaStreamIsCapturing(as_stream(stream), &status), "cudaStreamIsCapturing");
    return status != cudaStreamCaptureStatusNone;
  }

  // Graphs have edges for dependent launch since CUDA 12.3.
  bool captures_dependent_launch() const override {
    int driver = 0;
    check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
    return CUDART_VERSION >= 12030 && driver >= 12030;
  }

  // Returns a tracer only under a profiler. Profilers that use NVTX ranges set this variable before
  // the program starts.
  Tracer* tracer() override {
    return std::getenv("NVTX_INJECTION64_PATH") != nullptr ? &ranges_ : nullptr;
  }

 private:
  static cudaStream_t as_stream(void* stream) { return static_cast<cudaStream_t>(stream); }
  static cudaEvent_t as_event(void* event) { return static_cast<cudaEvent_t>(event); }
  // True for pageable host memory, which is neither device memory nor pinned.
  static bool is_ordinary(const void* memory) {
    cudaPointerAttributes attributes{};
    check(cudaPointerGetAttributes(&attributes, memory), "cudaPointerGetAttributes");
    return attributes.type == cudaMemoryTypeUnregistered;
  }
  static void refuse_ordinary_memory(const void* to, const void* from) {
    for (const void* memory : {to, from}) {
      if (!is_ordinary(memory)) continue;
      throw InternalError(
          "capture: a copy from or to pageable host memory, expected pinned or device memory, "
          "because the graph repeats the copy whenever it runs");
    }
  }
  struct Priorities {
    int least = 0, greatest = 0;
  };
  Priorities priorities() const {
    use();
    Priorities range;
    check(cudaDeviceGetStreamPriorityRange(&range.least, &range.greatest),
          "cudaDeviceGetStreamPriorityRange");
    return range;
  }
  static void* create_stream_of(int priority) {
    cudaStream_t stream = nullptr;
    // cudaStreamNonBlocking: does not synchronise with the default stream, which libraries use
    // internally.
    check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority),
          "cudaStreamCreateWithPriority");
    return stream;
  }
  void* create_event() const {
    use();
    cudaEvent_t event = nullptr;
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    return event;
  }
  static void destroy(void* event) {
    check_quietly(cudaEventDestroy(as_event(event)), "cudaEventDestroy");
  }

  NvtxRanges ranges_;
  Device device_;
  DeviceMemory memory_;
  PinnedMemory pinned_;
  std::atomic<bool> capturing_ = false;
  HandlePool events_;
  UploadRing uploads_;  // destroyed before the members above, because it uses events
};

// Requests 32 hardware queues, the maximum; the default is 8. Streams share them, and work waits
// for all earlier work in its queue. With few queues, ranks could deadlock: a message that waits
// for another rank would block the message for which that rank waits. CUDA reads the variable at
// its first call. A value set by the user stays.
void ask_for_queues() {
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);
}

}  // namespace

int64_t free_cuda_memory(const Device& device) {
  size_t free = 0, total = 0;
  check(cudaSetDevice(device.index), "cudaSetDevice");
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return static_cast<int64_t>(free);
}

GpuList visible_cuda_gpus() {
  ask_for_queues();
  GpuList list;
  try {
    int count = 0;
    check(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
    for (int index = 0; index < count; ++index) {
      std::array<char, 32> bus{};
      check(cudaDeviceGetPCIBusId(bus.data(), bus.size(), index), "cudaDeviceGetPCIBusId");
      list.ids.emplace_back(bus.data());
    }
    if (count == 0) list.why_none = "the driver shows no GPU; check CUDA_VISIBLE_DEVICES";
  } catch (const UnavailableError& error) {
    list.why_none = error.what();
  }
  return list;
}

std::unique_ptr<DeviceBackend> make_cuda_backend(const Device& device) {
  ask_for_queues();
  int count = 0;
  check(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
  if (device.index < 0 || device.index >= count) {
    throw UnavailableError(cat("device: ", device, ": this machine has ", count, " GPUs"));
  }
  Device found = device;
  found.arch = 10 * attribute(cudaDevAttrComputeCapabilityMajor, device.index) +
               attribute(cudaDevAttrComputeCapabilityMinor, device.index);
  if (found.arch < kOldestArch) {
    throw UnavailableError(
        cat("device: ", kernels_text(found, kOldestArch), "; use another GPU, or --device cpu"));
  }
  kernels::cuda::register_kernels();
  return std::make_unique<CudaBackend>(found);
}

}  // namespace shale
