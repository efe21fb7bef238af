#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <deque>
#include <map>
#include <mutex>

#include "shale/runtime/tensor/device_backend.h"
#include "shale/runtime/tensor/plan_clock.h"

namespace shale {

// A device for plans: its memory is addresses, whose pages the system provides only where somebody
// writes, so that the training state of any machine fits. With kernels::DryRun, what runs on it
// allocates what it would allocate on the device that it stands for, and computes nothing: on the
// CPU in the same order; on a GPU, whose kernels the emulator has, as if streams were never behind.
//
// Copies of at most kCopied bytes are made, as values that steer a step are small: per-step values,
// counts, losses; where kernels are run after all, those of kCopiedToCompute, which leave pages
// where they are. Of a longer copy come zeros. What was never written reads as zeros.
class PlanBackend final : public DeviceBackend {
 public:
  static constexpr size_t kCopied = 4096, kCopiedToCompute = 1 << 20;

  // computes: whether kernels are run on it after all, as to measure them; then it has large pages,
  // as the CPU's memory has, and each value that is written here or there provides one.
  // clock: keeps the time of streams and copies; null: nobody asks. It outlives this.
  explicit PlanBackend(const Device& device = {}, bool computes = false, PlanClock* clock = nullptr)
      : device_(device),
        copied_(computes ? kCopiedToCompute : kCopied),
        clock_(clock),
        memory_(computes),
        host_(computes) {}

  // Whether an address lies in memory() or host_memory().
  bool owns(const void* address) const { return memory_.owns(address) || host_.owns(address); }

  Device device() const override { return device_; }
  MemoryProvider& memory() override { return memory_; }
  MemoryProvider& host_memory() override { return host_; }
  void pin(void*, size_t) override {}
  void unpin(void*) noexcept override {}

  void* create_stream() override;  // null on the CPU, as there
  void destroy_stream(void*) noexcept override {}
  void synchronize(void*) override {}

  // An event is the time when it will come to pass, if there is a clock.
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
  const size_t copied_;  // bytes
  PlanClock* clock_;
  Addresses memory_, host_;
  std::deque<char> streams_;  // whose addresses are their handles
};

}  // namespace shale
