#include "shale/comm/node/shm_wait.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <climits>
#include <ctime>

namespace shale::comm {
namespace {

constexpr long kSleepNs = 10'000'000;  // interval between checks for failed peers
// Time within which a rank that leaves because of an error reports that error.
constexpr int64_t kGraceNs = 300'000'000;

int64_t now_ns() {
  return std::chrono::steady_clock::now().time_since_epoch().count();
}

void pause_core() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

// The futex is not FUTEX_PRIVATE, because several processes share the word.
void futex_wait(std::atomic<uint32_t>& word, uint32_t expected) {
  const timespec timeout{.tv_sec = 0, .tv_nsec = kSleepNs};
  // Ignores the result, because the caller checks the value again after every return.
  syscall(SYS_futex, &word, FUTEX_WAIT, expected, &timeout, nullptr, 0);
}

void futex_wake_all(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

WaitPolicy wait_policy(bool blocking, bool crowded) {
  if (crowded) return {.spins = 0, .yields = 4};
  if (blocking) return {.spins = 4000, .yields = 200};
  return {.spins = 100, .yields = 4};
}

bool node_is_crowded(int ranks_on_node) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof cores, &cores) != 0) return true;
  // A launcher that binds a rank to some of the cores gives these cores to no other rank.
  const long online = sysconf(_SC_NPROCESSORS_ONLN);
  if (CPU_COUNT(&cores) < online) return false;
  return ranks_on_node > online;
}

void SharedCounter::advance_to(uint32_t target) {
  // Sequentially consistent, like the two steps of a waiter: it increments `sleepers`, then checks
  // the value again. Either this thread sees the sleeper or the waiter sees the new value, so no
  // wake-up is lost.
  value.store(target, std::memory_order_seq_cst);
  if (sleepers.load(std::memory_order_seq_cst) > 0) futex_wake_all(value);
}

bool SharedCounter::wait(uint32_t target, const WaitPolicy& policy, double timeout_s,
                         const std::function<void()>& poll) {
  for (int i = 0; i < policy.spins; ++i) {
    if (reached(target)) return true;
    pause_core();
  }
  for (int i = 0; i < policy.yields; ++i) {
    if (reached(target)) return true;
    sched_yield();
  }
  const auto start = std::chrono::steady_clock::now();
  struct Sleeping {
    std::atomic<uint32_t>& count;
    explicit Sleeping(std::atomic<uint32_t>& c) : count(c) { count.fetch_add(1); }
    ~Sleeping() { count.fetch_sub(1); }
  };
  while (!reached(target)) {
    poll();
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
    if (timeout_s > 0 && waited.count() > timeout_s) return false;
    const Sleeping sleeping(sleepers);
    const uint32_t seen = value.load(std::memory_order_seq_cst);
    if (static_cast<int32_t>(seen - target) >= 0) return true;
    futex_wait(value, seen);
  }
  return true;
}

void Departure::leave() {
  time_ns.store(now_ns(), std::memory_order_release);
}

bool Departure::is_final() const {
  const int64_t left_ns = time_ns.load(std::memory_order_acquire);
  return left_ns != 0 && now_ns() >= left_ns + kGraceNs;
}

}  // namespace shale::comm
