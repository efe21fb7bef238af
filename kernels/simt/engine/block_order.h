#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>

namespace shale::emulator {

// How far other blocks' writes have been seen, by the block's number: those of earlier epochs. Each
// __threadfence() of a block ends an epoch of it.
using BlockClock = std::map<uint32_t, uint32_t>;

void merge(BlockClock& into, const BlockClock& from);

// What orders the blocks of a launch: a fence and then an atomic operation in one, an operation on
// the same place and then a fence in the other (PTX ISA, "Memory Consistency Model": release and
// acquire patterns). Barriers carry that on within a block; here whatever thread fences does so for
// its block. Safe for several threads.
class BlockOrder {
 public:
  // Without fences nothing is ordered, and atomic operations need not come here.
  void begin() { in_use_.store(true, std::memory_order_relaxed); }
  bool in_use() const { return in_use_.load(std::memory_order_relaxed); }

  // Around an atomic operation at `place`: who reads what it leaves there reads after the release.
  void release(const void* place, const BlockClock& clock);
  void acquire(const void* place, BlockClock& clock);

 private:
  std::atomic<bool> in_use_ = false;
  std::mutex mutex_;
  std::map<const void*, BlockClock> places_;
};

}  // namespace shale::emulator
