#pragma once

#include <atomic>
#include <functional>

namespace shale::comm {

// What a process hears of the other ranks, for its waits, and how long they may be. A rank that
// waits for one that is stopped does not come to what others wait for it in, though it lives: so a
// wait that reaches its time-out asks whether all ranks are alive before it names one that has not
// come.
class SignsOfLife {
 public:
  // Of the watchdog, after each look: how long the most silent rank has been so, of those that have
  // been heard of.
  void set_longest_silence(double seconds);
  // Nobody listens any more.
  void end();
  // Until set_started() waits may take so long, 0: for ever, where their time-outs are shorter: on
  // a busy machine ranks come one by one to their first meetings.
  void set_starting(double seconds);
  void set_started();
  // The longest wait now, of a time-out; 0: for ever.
  double limit(double timeout_s) const;
  // Whether a wait has reached its time-out, so that a shorter silence says enough.
  bool asked() const { return waits_.load() > 0; }

  // Returns when all ranks have given a sign since it was called, or nobody listens. If one gives
  // none, the watchdog ends the run by that rank's name; poll, called now and then, throws when it
  // has done so.
  void wait_for_all(const std::function<void()>& poll);

 private:
  std::atomic<double> longest_silence_s_{-1};  // negative: nobody listens
  std::atomic<double> start_s_{-1};            // negative: the start is over
  std::atomic<int> waits_{0};
};

}  // namespace shale::comm
