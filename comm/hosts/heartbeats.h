#pragma once

#include <atomic>
#include <functional>

namespace shale::comm {

// Heartbeat state of the other ranks, for waits and their time limits. If rank A waits for a
// stopped rank, then ranks that wait for A time out too, although A is alive. A wait that reaches
// its time-out therefore first asks whether all ranks are alive, before it names a missing one.
class Heartbeats {
 public:
  // Set by the watchdog in each iteration: longest silence of the ranks that have sent heartbeats.
  void set_longest_silence(double seconds);
  // Called when the watchdog has ended.
  void end();
  // Sets the minimum limit of all waits until set_started(), 0: no limit. On a busy machine ranks
  // are late for their first collectives.
  void set_starting(double seconds);
  void set_started();
  // Current limit for a wait with this time-out; 0: no limit.
  double limit(double timeout_s) const;
  // True if a wait has reached its time-out, so that a shorter silence suffices for an alarm.
  bool asked() const { return waits_.load() > 0; }

  // Returns when all ranks have sent a heartbeat since the call, or if no watchdog runs. If a rank
  // sends none, the watchdog ends the run and names it; poll, called repeatedly, then throws.
  void wait_for_all(const std::function<void()>& poll);

 private:
  std::atomic<double> longest_silence_s_{-1};  // negative: no watchdog runs
  std::atomic<double> start_s_{-1};            // negative: set_started() was called
  std::atomic<int> waits_{0};
};

}  // namespace shale::comm
