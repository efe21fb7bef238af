#pragma once

#include <atomic>
#include <cstdint>

namespace shale::test {

// Calls that the NCCL stand-in has counted, and the behaviour that tests request.
struct NcclCounts {
  std::atomic<int64_t> launches{0};             // collectives and groups of sends and receives
  std::atomic<int64_t> threads{0};              // started by launches on non-blocking communicators
  std::atomic<int64_t> locks_held{0};           // most locks held by a caller in any launch
  std::atomic<int64_t> launches_on_parents{0};  // on non-blocking communicators
  std::atomic<int64_t> parents{0};              // non-blocking communicators created
  std::atomic<int64_t> children{0};             // blocking communicators created
  std::atomic<int64_t> calls_while_busy{0};     // on communicators with a pending call
  std::atomic<int64_t> revoked{0};
  std::atomic<int64_t> freed{0};
  std::atomic<int64_t> freed_in_use{0};  // during a launch
  std::atomic<bool> stall{false};        // makes launches wait, as for a missing rank
};

// Function of the test program that the stand-in calls: number of locks held by this thread.
using LocksHeld = int64_t (*)();

}  // namespace shale::test
