// Counts locked mutexes: defines functions that replace those of the C library. This is a separate
// library, because it slows down programs that link it.
#include "shale/bench/support/lock_count.h"

#include <dlfcn.h>
#include <pthread.h>

#include <chrono>

namespace shale::bench {
namespace {

using Clock = std::chrono::steady_clock;

thread_local int64_t taken = 0, held = 0, nanoseconds = 0;
thread_local Clock::rep since = 0;

Clock::rep now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
      .count();
}

using MutexFunction = int(pthread_mutex_t*);

MutexFunction* next(const char* name) {
  return reinterpret_cast<MutexFunction*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

LockTotals locks_of_this_thread() {
  return {.taken = taken, .seconds = static_cast<double>(nanoseconds) * 1e-9};
}

bool counts_locks() {
  return true;
}

}  // namespace shale::bench

extern "C" {

int pthread_mutex_lock(pthread_mutex_t* mutex) {
  using namespace shale::bench;
  static MutexFunction* const real = next("pthread_mutex_lock");
  ++taken;
  if (held++ == 0) since = now();
  return real(mutex);
}

int pthread_mutex_unlock(pthread_mutex_t* mutex) {
  using namespace shale::bench;
  static MutexFunction* const real = next("pthread_mutex_unlock");
  const int result = real(mutex);
  // Mutexes that try_lock locked, or a wait for a condition locked again, do not count.
  if (held > 0 && --held == 0) nanoseconds += now() - since;
  return result;
}

}  // extern "C"
