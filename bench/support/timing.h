#pragma once

#include <chrono>
#include <vector>

namespace shale::bench {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Seconds that one call of fn takes.
template <typename Fn>
double time_once(Fn&& fn) {
  const Clock::time_point start = Clock::now();
  fn();
  return seconds_since(start);
}

// Times of several runs of the same thing. The median is what a user gets; the minimum is what is
// left when the machine had nothing else to do.
struct Samples {
  std::vector<double> seconds;

  void add(double value) { seconds.push_back(value); }
  bool empty() const { return seconds.empty(); }
  double median() const;  // of an even number: the mean of the middle two; 0 of none
  double min() const;     // 0 of none
  double sum() const;
};

// Median of a[i] / b[i], for runs that took turns: what slowed the machine down for a while slowed
// both sides down, so this is steadier than the ratio of the medians. Throws InternalError unless
// both have the same number of runs.
double paired_ratio(const Samples& a, const Samples& b);

// Processor time that this process has used so far, all threads.
double process_cpu_seconds();

}  // namespace shale::bench
