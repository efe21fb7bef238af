#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>

namespace shale::emulator {

// Maps the number of another block to an epoch e: this block has seen that block's writes of epochs
// before e. A block's __threadfence() ends its current epoch.
using BlockClock = std::map<uint32_t, uint32_t>;

void merge(BlockClock& into, const BlockClock& from);

// Orders the blocks of a launch. Say that one block executes a fence and then an atomic operation,
// and another block executes an atomic operation on the same address and then a fence. Then
// everything before the first block's fence comes before everything after the second block's fence
// (PTX ISA, "Memory Consistency Model": release and acquire patterns). Barriers extend this order
// within a block; here a fence by any thread counts for its block. Thread-safe.
class BlockOrder {
 public:
  // Called at the first fence of a launch. Without fences no block is ordered, and atomic
  // operations skip this class.
  void begin() { in_use_.store(true, std::memory_order_relaxed); }
  bool in_use() const { return in_use_.load(std::memory_order_relaxed); }

  // An atomic operation at `place` calls release() before and acquire() after it, so that a block
  // which reads a value acquires what the blocks that wrote it have released.
  void release(const void* place, const BlockClock& clock);
  void acquire(const void* place, BlockClock& clock);

 private:
  std::atomic<bool> in_use_ = false;
  std::mutex mutex_;
  std::map<const void*, BlockClock> places_;
};

}  // namespace shale::emulator
