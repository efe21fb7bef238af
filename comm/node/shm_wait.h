#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

namespace shale::comm {

// Waiting for another process through a counter in shared memory.
//
// A wait has three phases, because the best method depends on the load of the cores. Spinning
// reacts fastest, but is useless if the peer has no core to run on. Yielding gives the core to such
// a peer. Sleeping (a futex on the counter) frees the core for any process, and costs a wake-up.
struct WaitPolicy {
  int spins = 0;
  int yields = 0;
};

// `blocking`: the caller has nothing else to do, so it may spin for long. Not for a communication
// thread, which shares its cores with the computation. `crowded`: there are more ranks than cores.
WaitPolicy wait_policy(bool blocking, bool crowded);

bool node_is_crowded(int ranks_on_node);  // true: more ranks than cores, and this rank is unbound

// A counter that one process advances and others wait for.
struct alignas(64) SharedCounter {
  std::atomic<uint32_t> value{0};
  std::atomic<uint32_t> sleepers{0};

  bool reached(uint32_t target) const {
    // The difference is correct even after the counter wraps around.
    return static_cast<int32_t>(value.load(std::memory_order_acquire) - target) >= 0;
  }
  void advance_to(uint32_t target);  // wakes sleeping waiters

  // Returns true when the counter has reached `target`, false after timeout_s (0: no limit). Calls
  // poll() every few milliseconds, which may throw to end the wait.
  bool wait(uint32_t target, const WaitPolicy& policy, double timeout_s,
            const std::function<void()>& poll);
};

// Records that a process stops using shared memory.
struct Departure {
  std::atomic<int64_t> time_ns{0};  // 0: the process has not left

  void leave();
  // True some time after leave(): a process that left because of an error has reported it by then.
  bool is_final() const;
};

static_assert(std::atomic<uint32_t>::is_always_lock_free);

}  // namespace shale::comm
