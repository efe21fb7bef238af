#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>

namespace shale::emulator {

// Maps another block's number to an epoch: its writes of earlier epochs have been seen. Each
// __threadfence() of a block ends one of its epochs.
using BlockClock = std::map<uint32_t, uint32_t>;

void merge(BlockClock& into, const BlockClock& from);

// Order between the blocks of a launch: a fence followed by an atomic operation in one block, and
// an operation on the same address followed by a fence in the other (PTX ISA, "Memory Consistency
// Model": release and acquire patterns). Barriers extend this order within a block; here a fence by
// any thread counts for its block. Thread-safe.
class BlockOrder {
 public:
  // Called at the first fence: without fences nothing is ordered, and atomics skip this class.
  void begin() { in_use_.store(true, std::memory_order_relaxed); }
  bool in_use() const { return in_use_.load(std::memory_order_relaxed); }

  // Called around an atomic operation at `place`: a block that reads the value it leaves acquires
  // it.
  void release(const void* place, const BlockClock& clock);
  void acquire(const void* place, BlockClock& clock);

 private:
  std::atomic<bool> in_use_ = false;
  std::mutex mutex_;
  std::map<const void*, BlockClock> places_;
};

}  // namespace shale::emulator
