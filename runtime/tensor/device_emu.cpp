// The emulated GPU as a device. Its memory is host memory; its streams are queues whose work runs
// late and interleaved (kernels/simt/engine/stream.h). It makes behaviour visible that CUDA leaves
// undefined: new memory is NaN, and a pinned buffer is read when the copy runs, not when it is
// queued.
#include <cstring>
#include <map>
#include <mutex>

#include "shale/base/error.h"
#include "shale/base/gpu_model.h"
#include "shale/base/host_memory.h"
#include "shale/kernels/registry.h"
#include "shale/kernels/simt/engine/mapping.h"
#include "shale/kernels/simt/engine/stream.h"
#include "shale/runtime/tensor/device_backend.h"

namespace shale {
namespace {

using emulator::Event;
using emulator::Recording;
using emulator::Stream;
using emulator::StreamSet;

// Memory provider that registers its allocations with the emulator.
class KnownMemory final : public MemoryProvider {
 public:
  KnownMemory(StreamSet& streams, bool exact) : streams_(streams), exact_(exact) {}

  void* allocate(size_t bytes) override {
    require_host_memory(int64_t(bytes));
    emulator::Mapping mapping(bytes);
    std::memset(mapping.data(), 0xff, bytes);
    const std::lock_guard lock(mutex_);
    void* memory = mapping.data();
    owned_.emplace(memory, std::move(mapping));
    know_locked(memory, bytes);
    return memory;
  }

  // Runs queued work first, because it may use the memory. cudaFree does the same.
  void free(void* memory, size_t) noexcept override {
    forget(memory);
    const std::lock_guard lock(mutex_);
    owned_.erase(memory);
  }

  // Registers memory that another owner allocated.
  void know(void* memory, size_t bytes) {
    const std::lock_guard lock(mutex_);
    know_locked(memory, bytes);
  }
  void forget(void* memory) noexcept {
    streams_.drain();
    const std::lock_guard lock(mutex_);
    ends_.erase(static_cast<std::byte*>(memory));
    streams_.memory().remove(memory);
  }

  bool is_exact() const override { return exact_; }

  bool contains(const void* p) const {
    const auto* byte = static_cast<const std::byte*>(p);
    const std::lock_guard lock(mutex_);
    const auto next = ends_.upper_bound(byte);
    return next != ends_.begin() && byte < std::prev(next)->second;
  }

 private:
  // Allows kernels to use the memory. The emulator does not track its single elements, because the
  // caching allocator divides and reuses it, and the host may write it.
  void know_locked(void* memory, size_t bytes) {
    ends_.emplace(static_cast<std::byte*>(memory), static_cast<std::byte*>(memory) + bytes);
    streams_.memory().add(memory, bytes);
  }

  StreamSet& streams_;
  const bool exact_;
  mutable std::mutex mutex_;
  std::map<const void*, emulator::Mapping> owned_;
  std::map<const std::byte*, const std::byte*> ends_;  // begin -> end of each allocation
};

class EmuGraph final : public DeviceGraph {
 public:
  explicit EmuGraph(std::unique_ptr<Recording> recording) : recording_(std::move(recording)) {}
  void launch(void* stream) override { recording_->replay(*static_cast<Stream*>(stream)); }

 private:
  std::unique_ptr<Recording> recording_;
};

class EmuBackend final : public DeviceBackend {
 public:
  EmuBackend(const Device& device, const emulator::Options& options)
      : device_(device), streams_(options), memory_(streams_, options.exact) {}

  Device device() const override { return device_; }
  MemoryProvider& memory() override { return memory_; }
  MemoryProvider& host_memory() override { return pinned_; }
  void pin(void* memory, size_t bytes) override { pinned_.know(memory, bytes); }
  void unpin(void* memory) noexcept override { pinned_.forget(memory); }
  void* adopt(size_t bytes, const std::function<void*()>& allocate) override {
    void* const memory = allocate();
    if (memory != nullptr) memory_.know(memory, bytes);
    return memory;
  }
  void disown(void* memory) noexcept override { memory_.forget(memory); }

  bool reaches(const void* memory) const override { return is_ours(memory); }

  void* create_stream() override { return streams_.create(); }
  void destroy_stream(void* stream) noexcept override {
    if (stream != nullptr) streams_.destroy(as_stream(stream));
  }
  void synchronize(void* stream) override { streams_.synchronize(as_stream(stream)); }

  // A handle is a shared pointer, because queues hold the event, too.
  void* record_event(void* stream) override {
    return new std::shared_ptr<Event>(stream != nullptr ? streams_.record(as_stream(stream))
                                                        : std::make_shared<Event>(Event{true}));
  }
  void wait_event(void* stream, void* event) override {
    if (stream == nullptr) return streams_.synchronize(*as_event(event));
    streams_.wait(as_stream(stream), as_event(event));
  }
  bool event_done(void* event) override { return streams_.done(*as_event(event)); }
  void synchronize_event(void* event) override { streams_.synchronize(*as_event(event)); }
  void destroy_event(void* event) noexcept override {
    delete static_cast<std::shared_ptr<Event>*>(event);
  }

  // Like CUDA, reads or writes pageable host memory before the call returns, and device or pinned
  // memory when the stream reaches the copy.
  void copy(void* to, const void* from, size_t bytes, void* stream) override {
    if (bytes == 0) return;
    if (stream == nullptr) {
      std::memmove(to, from, bytes);
    } else if (captures(stream) && !(is_ours(from) && is_ours(to))) {
      throw InternalError(
          "capture: a copy from or to pageable host memory, expected pinned or device memory, "
          "because the graph repeats the copy whenever it runs");
    } else if (!is_ours(from)) {
      const auto* begin = static_cast<const std::byte*>(from);
      as_stream(stream)->enqueue([to, kept = std::vector<std::byte>(begin, begin + bytes)] {
        std::memcpy(to, kept.data(), kept.size());
      });
    } else {
      as_stream(stream)->enqueue([to, from, bytes] { std::memmove(to, from, bytes); });
      if (!is_ours(to)) synchronize(stream);
    }
  }

  void begin_capture(void* stream) override { streams_.begin_capture(as_stream(stream)); }
  std::unique_ptr<DeviceGraph> end_capture(void* stream) override {
    return std::make_unique<EmuGraph>(streams_.end_capture(as_stream(stream)));
  }
  bool captures(void* stream) const override {
    return stream != nullptr && streams_.captures(as_stream(stream));
  }

 private:
  static Stream* as_stream(void* stream) { return static_cast<Stream*>(stream); }
  static const std::shared_ptr<Event>& as_event(void* event) {
    return *static_cast<std::shared_ptr<Event>*>(event);
  }
  bool is_ours(const void* p) const { return memory_.contains(p) || pinned_.contains(p); }

  Device device_;
  StreamSet streams_;
  KnownMemory memory_;
  KnownMemory pinned_{streams_, false};
};

}  // namespace

std::unique_ptr<DeviceBackend> make_emu_backend(const Device& device) {
  return make_emu_backend(device, emulator::default_options());
}

std::unique_ptr<DeviceBackend> make_emu_backend(const Device& device,
                                                const emulator::Options& options) {
  Device emulated = device;
  if (emulated.arch == 0) emulated.arch = 90;
  if (!gpu_model(emulated.arch).emulated || gpu_model(emulated.arch).arch != emulated.arch) {
    std::string known;
    for (const std::string& name : emulated_names()) known += cat(known.empty() ? "" : ", ", name);
    throw UnavailableError(cat("device: ", device, ", expected one of ", known));
  }
  kernels::emu::register_kernels();
  return std::make_unique<EmuBackend>(emulated, options);
}

}  // namespace shale
