#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>

namespace shale::models {

// Decides when a run saves: every `every_steps` steps, and when `minutes` have passed since the
// last save or the start of the run. After a failed save, tries again in 1, 2, 4, ... minutes.
// Callers supply the time.
class SaveSchedule {
 public:
  using Time = std::chrono::steady_clock::time_point;
  // If no save has succeeded for this long, a failed save ends the run.
  static constexpr std::chrono::minutes kPatience{60};

  // every_steps, minutes: 0 means that this criterion does not apply. Negative minutes: the
  // schedule chooses them from the saves and failures that the caller reports; until then they are
  // kFirstMinutes.
  SaveSchedule(int64_t every_steps, double minutes, Time now)
      : every_steps_(every_steps),
        is_auto_(minutes < 0),
        minutes_(is_auto_ ? kFirstMinutes : minutes),
        started_(now),
        saved_at_(now) {}

  bool due_by_steps(int64_t step) const { return every_steps_ > 0 && step % every_steps_ == 0; }
  bool has_minutes() const { return minutes_ > 0; }
  bool is_auto() const { return is_auto_; }
  double minutes() const { return minutes_; }
  bool due_by_time(Time now) const {
    return (fails() && now >= failed_at_ + delay_) ||
           (has_minutes() && seconds(saved_at_, now) >= 60 * minutes_);
  }
  // Call it when the state has been copied for a save, which blocked training from `begin` to
  // `now`. `minutes` count from `now`.
  void saved(Time begin, Time now) {
    saved_at_ = failed_at_ = now;
    pause_s_ = seconds(begin, now);
  }

  // ---- For failed saves ----

  // Call it after a save that failed. Call written() after one that succeeded.
  void failed(Time now) {
    if (!fails()) fails_since_ = now;
    delay_ = fails() ? 2 * delay_ : std::chrono::minutes(1);
    failed_at_ = now;
  }
  bool fails() const { return delay_.count() > 0; }
  bool is_hopeless(Time now) const { return fails() && now - fails_since_ >= kPatience; }
  std::chrono::minutes delay() const { return delay_; }  // time until the next try

  // ---- For automatic minutes ----

  // Sets the number of failures in the `elapsed_s` seconds before this start, of a run on `ranks`
  // devices.
  void set_failures(int64_t failures, double elapsed_s, int ranks) {
    failures_ = static_cast<double>(failures);
    elapsed_s_ = elapsed_s;
    ranks_ = ranks;
  }
  // Returns an estimate of the mean time between failures. Adds two rates: that of the run's
  // failures so far, and that of as many devices in Llama 3's training (419 unexpected
  // interruptions in 54 days of 16,384 GPUs, arXiv:2407.21783).
  double between_failures_s(Time now) const {
    constexpr double kOfDevice_s = 54 * 86400. * 16384 / 419;
    const double elapsed_s = std::max(elapsed_s_ + seconds(started_, now), 60.);
    return 1 / (ranks_ / kOfDevice_s + failures_ / elapsed_s);
  }
  // Call it when a save is on the disk. If the schedule chooses the minutes, sets them to sqrt(2 C
  // M), with C the pause of training for a save and M the mean time between failures (J. Young, "A
  // first order approximation to the optimum checkpoint interval", 1974). They are at least 1 and
  // at most kMostMinutes, but always at least twice the time that writing takes.
  void written(Time now) {
    delay_ = {};
    if (!is_auto_) return;
    const double best_s = std::sqrt(2 * pause_s_ * between_failures_s(now));
    const double least_s = std::max(60., 2 * seconds(saved_at_, now));
    minutes_ = std::clamp(best_s / 60, least_s / 60, std::max(kMostMinutes, least_s / 60));
  }

 private:
  static constexpr double kFirstMinutes = 10, kMostMinutes = 120;
  static double seconds(Time from, Time to) {
    return std::chrono::duration<double>(to - from).count();
  }

  int64_t every_steps_;
  bool is_auto_;
  double minutes_;
  Time started_, saved_at_;
  double pause_s_ = 0;
  double failures_ = 0, elapsed_s_ = 0;
  int ranks_ = 1;
  Time fails_since_, failed_at_;
  std::chrono::minutes delay_{0};  // 0: the last save succeeded
};

}  // namespace shale::models
