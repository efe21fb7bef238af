#pragma once

#include <cstdint>

namespace shale::bench {

// Mutexes locked by one thread.
struct LockTotals {
  int64_t taken = 0;
  double seconds = 0;  // from each request until none is held, including waits for conditions
};

// Returns the totals of the calling thread. Calls of the program's functions count; those inside
// the C library do not.
LockTotals locks_of_this_thread();

// Returns false in builds with a sanitizer, which interposes these functions itself: totals are
// zero.
bool counts_locks();

}  // namespace shale::bench
