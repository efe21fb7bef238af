#pragma once

#include <cstdint>

namespace shale::bench {

// Mutexes locked by one thread, as totals.
struct LockTotals {
  int64_t taken = 0;
  // From each lock request until the thread holds no mutex, including waits for conditions.
  double seconds = 0;
};

// Returns the totals of the calling thread. Calls from the program's functions count; calls inside
// the C library do not.
LockTotals locks_of_this_thread();

// Returns false in builds with a sanitizer, which interposes these functions itself: totals are
// then zero.
bool counts_locks();

}  // namespace shale::bench
