#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <deque>
#include <map>
#include <mutex>

#include "shale/runtime/tensor/device_backend.h"
#include "shale/runtime/tensor/plan_clock.h"

namespace shale {

// Device for dry runs. Its memory is address space: the system provides a page only when it is
// written, so the training state of any machine fits. With kernels::DryRun, code makes the same
// allocations as on the planned device, but computes nothing. For a CPU the order of allocations is
// also the same. For a GPU, whose kernels must exist in the emulator, streams never lag behind the
// host.
//
// Copies of at most kCopied bytes are performed, because values that control a step are small:
// per-step values, counts, losses. If kernels do run, copies up to kCopiedToCompute are performed,
// and leave pages in place. A longer copy yields zeros. Memory that was never written reads as
// zeros.
class PlanBackend final : public DeviceBackend {
 public:
  static constexpr size_t kCopied = 4096, kCopiedToCompute = 1 << 20;

  // computes: true if kernels do run on it, for example to measure them. It then has large pages,
  // like the CPU's memory, and each written value makes one of them resident. clock: keeps the time
  // of streams and copies; null: none. It must outlive this backend.
  explicit PlanBackend(const Device& device = {}, bool computes = false, PlanClock* clock = nullptr)
      : device_(device),
        copied_(computes ? kCopiedToCompute : kCopied),
        clock_(clock),
        memory_(computes),
        host_(computes) {}

  // True if an address lies in memory() or host_memory().
  bool owns(const void* address) const { return memory_.owns(address) || host_.owns(address); }

  Device device() const override { return device_; }
  MemoryProvider& memory() override { return memory_; }
  MemoryProvider& host_memory() override { return host_; }
  void pin(void*, size_t) override {}
  void unpin(void*) noexcept override {}

  void* create_stream() override;  // null on the CPU, as on the real device
  void destroy_stream(void*) noexcept override {}
  void synchronize(void*) override {}

  // Events hold the time at which they will be done, if there is a clock.
  void* record_event(void* stream) override;
  void wait_event(void* stream, void* event) override;
  bool event_done(void*) override { return true; }
  void synchronize_event(void* event) override;
  void destroy_event(void* event) noexcept override { delete static_cast<double*>(event); }

  void copy(void* to, const void* from, size_t bytes, void* stream) override;

 private:
  class Addresses final : public MemoryProvider {
   public:
    explicit Addresses(bool large_pages) : advice_(large_pages ? MADV_HUGEPAGE : MADV_NOHUGEPAGE) {}
    void* allocate(size_t bytes) override;
    void free(void* memory, size_t bytes) noexcept override;
    bool owns(const void* address) const;

   private:
    const int advice_;
    mutable std::mutex mutex_;
    std::map<const std::byte*, size_t> segments_;
  };

  PlanClock::Way way_of(const void* to, const void* from) const;

  Device device_;
  const size_t copied_;  // longest copy that is performed, in bytes
  PlanClock* clock_;
  Addresses memory_, host_;
  std::deque<char> streams_;  // their addresses are the handles
};

}  // namespace shale
