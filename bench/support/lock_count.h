#pragma once

#include <cstdint>

namespace shale::bench {

// Mutexes that one thread took.
struct LockTotals {
  int64_t taken = 0;
  double seconds = 0;  // from asking for one until none is held, waits for conditions among them
};

// Of the calling thread, since it began. The program's own functions count: what is inside the C
// library does not.
LockTotals locks_of_this_thread();

// False in builds with a sanitizer, which has these functions itself: the totals are zero.
bool counts_locks();

}  // namespace shale::bench
