#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <deque>
#include <map>
#include <mutex>

#include "shale/runtime/tensor/device_backend.h"

namespace shale {

// A device for plans: its memory is addresses, whose pages the system provides only where somebody
// writes, so that the training state of any machine fits. With kernels::DryRun, what runs on it
// allocates what it would allocate on the device that it stands for, and computes nothing: on the
// CPU in the same order; on a GPU, whose kernels the emulator has, as if streams were never behind.
//
// Copies of at most kCopied bytes are made, as values that steer a step are small: per-step values,
// counts, losses. Of a longer copy come zeros. What was never written reads as zeros.
class PlanBackend final : public DeviceBackend {
 public:
  static constexpr size_t kCopied = 4096;

  // computes: whether kernels are run on it after all, as to measure them; then it has large pages,
  // as the CPU's memory has, and each value that is written here or there provides one.
  explicit PlanBackend(const Device& device = {}, bool computes = false)
      : device_(device), memory_(computes) {}

  // Whether an address lies in memory() or host_memory().
  bool owns(const void* address) const { return memory_.owns(address); }

  Device device() const override { return device_; }
  MemoryProvider& memory() override { return memory_; }
  MemoryProvider& host_memory() override { return memory_; }
  void pin(void*, size_t) override {}
  void unpin(void*) noexcept override {}

  void* create_stream() override;  // null on the CPU, as there
  void destroy_stream(void*) noexcept override {}
  void synchronize(void*) override {}

  void* record_event(void*) override { return nullptr; }
  void wait_event(void*, void*) override {}
  bool event_done(void*) override { return true; }
  void synchronize_event(void*) override {}
  void destroy_event(void*) noexcept override {}

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

  Device device_;
  Addresses memory_;
  std::deque<char> streams_;  // whose addresses are their handles
};

}  // namespace shale
