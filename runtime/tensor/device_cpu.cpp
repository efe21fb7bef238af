// The CPU as a device. Memory is mapped in huge pages if the OS grants them. Streams run
// synchronously on the calling thread, so every event is done when it is recorded.
#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "shale/base/error.h"
#include "shale/base/host_memory.h"
#include "shale/runtime/tensor/device_backend.h"

namespace shale {
namespace {

class MappedMemory final : public MemoryProvider {
 public:
  void* allocate(size_t bytes) override {
    require_host_memory(int64_t(bytes), mapped_);
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
      throw OutOfMemoryError(
          cat("memory: cannot allocate ", format_bytes(double(bytes)), ": ", std::strerror(errno)));
    }
    // Asks for huge pages, because page faults at the first access to 4 KiB pages cost more than
    // the kernels that write the memory. The result is not checked: without huge pages it is only
    // slower.
    madvise(memory, bytes, MADV_HUGEPAGE);
    mapped_ += int64_t(bytes);
    return memory;
  }
  void free(void* memory, size_t bytes) noexcept override {
    munmap(memory, bytes);
    mapped_ -= int64_t(bytes);
  }

 private:
  static inline std::atomic<int64_t> mapped_ = 0;  // bytes mapped by all contexts
};

class CpuBackend final : public DeviceBackend {
 public:
  Device device() const override { return {}; }
  MemoryProvider& memory() override { return memory_; }
  MemoryProvider& host_memory() override { return memory_; }
  void pin(void*, size_t) override {}
  void unpin(void*) noexcept override {}

  void* create_stream() override { return nullptr; }
  void destroy_stream(void*) noexcept override {}
  void synchronize(void*) override {}

  void* record_event(void*) override { return nullptr; }
  void wait_event(void*, void*) override {}
  bool event_done(void*) override { return true; }
  void synchronize_event(void*) override {}
  void destroy_event(void*) noexcept override {}

  void copy(void* to, const void* from, size_t bytes, void*) override {
    if (bytes > 0) std::memmove(to, from, bytes);
  }

 private:
  MappedMemory memory_;
};

}  // namespace

std::unique_ptr<DeviceBackend> make_cpu_backend() {
  return std::make_unique<CpuBackend>();
}

}  // namespace shale
