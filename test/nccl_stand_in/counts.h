#pragma once

#include <atomic>
#include <cstdint>

namespace shale::test {

// Counts of calls to the NCCL stand-in, and behaviour that tests request from it.
struct NcclCounts {
  // Number of launches: of collectives, and of groups of sends and receives.
  std::atomic<int64_t> launches{0};
  // Number of threads that launches on non-blocking communicators have started.
  std::atomic<int64_t> threads{0};
  std::atomic<int64_t> locks_held{0};  // largest number of locks that a caller of a launch held
  std::atomic<int64_t> launches_on_parents{0};  // launches on non-blocking communicators
  std::atomic<int64_t> parents{0};              // non-blocking communicators created
  std::atomic<int64_t> children{0};             // blocking communicators created
  std::atomic<int64_t> calls_while_busy{0};     // calls on communicators that have a pending call
  std::atomic<int64_t> revoked{0};
  std::atomic<int64_t> freed{0};
  std::atomic<int64_t> freed_in_use{0};  // communicators freed during a launch on them
  std::atomic<int64_t> max_ctas{0};      // maxCTAs of the last communicator that had this limit
  std::atomic<int64_t> memory{0};        // bytes that ncclMemAlloc has given out
  std::atomic<bool> stall{false};        // true: launches wait, as if a rank were missing
  // ncclResult_t that communicators report, as after a failure on the device or in the network.
  std::atomic<int> async_error{0};
  std::atomic<int> version{0};  // what ncclGetVersion returns; 0: the version of the header
};

// Function of the test program, called by the stand-in. It returns the number of locks that this
// thread holds.
using LocksHeld = int64_t (*)();

}  // namespace shale::test
