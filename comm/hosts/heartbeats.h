#pragma once

#include <atomic>
#include <functional>

namespace shale::comm {

// What is known about the heartbeats of the other ranks, for waits with a time limit. Suppose that
// rank A waits for a stopped rank. Then ranks that wait for A time out too, although A is alive. A
// wait that reaches its limit therefore asks first whether all ranks are alive, and names a missing
// rank only then.
class Heartbeats {
 public:
  // Called by the watchdog in each iteration. seconds: longest time since the last heartbeat of a
  // rank, among ranks that have sent one.
  void set_longest_silence(double seconds);
  // Called when the watchdog ends.
  void end();
  // Sets the least time limit of all waits until set_started(); 0: no limit. On a busy machine
  // ranks may be late for their first collectives.
  void set_starting(double seconds);
  void set_started();
  // Returns the current time limit of a wait with the time-out `timeout_s`. 0: no limit.
  double limit(double timeout_s) const;
  // True if a wait has reached its time limit; an alarm then needs only a shorter silence.
  bool asked() const { return waits_.load() > 0; }

  // Returns when all ranks have sent a heartbeat since the call, or if no watchdog runs. If a rank
  // sends none, the watchdog ends the run and names that rank. poll() is called repeatedly and
  // throws in that case.
  void wait_for_all(const std::function<void()>& poll);

 private:
  std::atomic<double> longest_silence_s_{-1};  // negative: no watchdog runs
  std::atomic<double> start_s_{-1};            // negative: no minimum
  std::atomic<int> waits_{0};
};

}  // namespace shale::comm
