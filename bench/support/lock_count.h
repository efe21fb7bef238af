#pragma once

#include <cstdint>

namespace shale::bench {

// Mutexes locked by one thread, as totals.
struct LockTotals {
  int64_t taken = 0;
  // Time from a request for a lock until the thread holds no mutex; includes waits for conditions.
  double seconds = 0;
};

// Returns the totals of the calling thread. Counts mutexes that the program locks, but not those
// that the C library locks itself.
LockTotals locks_of_this_thread();

// Returns false in builds with a sanitizer, which replaces the same functions. Totals are then
// zero.
bool counts_locks();

}  // namespace shale::bench
