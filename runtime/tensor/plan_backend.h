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
// also the same. For a GPU, streams never lag behind the host, and its kernels must exist in the
// emulator.
//
// Copies of at most kCopied bytes are performed, because small values control a step: per-step
// values, counts, losses. If kernels do run, copies of up to kCopiedToCompute bytes are performed,
// and leave pages in place. A longer copy writes zeros. Memory that was never written reads as
// zeros.
class PlanBackend final : public DeviceBackend {
 public:
  static constexpr size_t kCopied = 4096, kCopiedToCompute = 1 << 20;

  // computes: true if kernels do run, for example to measure them. Memory then consists of large
  // pages, like the CPU's memory, and a written value makes a whole one resident. clock: computes
  // the time of streams and copies; null: none. It must outlive this backend.
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

  void* create_stream() override;  // returns null on the CPU, as the real device does
  void destroy_stream(void*) noexcept override {}
  void synchronize(void*) override {}

  // If there is a clock, an event holds the time at which it will be done.
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
  const size_t copied_;  // maximum bytes of a copy that is performed
  PlanClock* clock_;
  Addresses memory_, host_;
  std::deque<char> streams_;  // the addresses of these elements are the stream handles
};

}  // namespace shale
