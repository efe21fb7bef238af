#pragma once

#include <chrono>
#include <cstdint>

namespace shale::models {

// Decides when a run saves: every `every_steps` steps, and when `minutes` have passed since the
// last save or the start of the run. Callers supply the time.
class SaveSchedule {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // A value of 0 disables its criterion. Arguments must not be negative.
  SaveSchedule(int64_t every_steps, double minutes, Time now)
      : every_steps_(every_steps), minutes_(minutes), saved_at_(now) {}

  bool due_by_steps(int64_t step) const { return every_steps_ > 0 && step % every_steps_ == 0; }
  bool has_minutes() const { return minutes_ > 0; }
  bool due_by_time(Time now) const {
    return has_minutes() &&
           std::chrono::duration<double, std::ratio<60>>(now - saved_at_).count() >= minutes_;
  }
  // Restarts the time for `minutes`, because the state was saved now.
  void saved(Time now) { saved_at_ = now; }

 private:
  int64_t every_steps_;
  double minutes_;
  Time saved_at_;
};

}  // namespace shale::models
