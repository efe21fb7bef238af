#pragma once

#include <atomic>
#include <cstdint>

namespace shale::test {

// What the stand-in for NCCL has been asked to do, and what tests ask of it.
struct NcclCounts {
  std::atomic<int64_t> launches{0};    // collectives and groups of sends and receives
  std::atomic<int64_t> threads{0};     // that launches on non-blocking communicators started
  std::atomic<int64_t> locks_held{0};  // by the caller in any launch, the most
  std::atomic<int64_t> launches_on_parents{0};  // on communicators that do not block
  std::atomic<int64_t> parents{0};              // non-blocking communicators that were made
  std::atomic<int64_t> children{0};             // blocking ones
  std::atomic<int64_t> calls_while_busy{0};     // on communicators whose last call is not done
  std::atomic<int64_t> revoked{0};
  std::atomic<int64_t> freed{0};
  std::atomic<int64_t> freed_in_use{0};  // while a launch was inside
  std::atomic<bool> stall{false};        // launches wait, as for a rank that does not come
};

// What the program has that the stand-in asks for: how many locks this thread holds.
using LocksHeld = int64_t (*)();

}  // namespace shale::test
