#pragma once

#include <chrono>
#include <vector>

namespace shale::bench {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Returns the seconds of one call of fn.
template <typename Fn>
double time_once(Fn&& fn) {
  const Clock::time_point start = Clock::now();
  fn();
  return seconds_since(start);
}

// Times of several runs of the same work. The median is what a user sees; the minimum excludes
// disturbances.
struct Samples {
  std::vector<double> seconds;

  void add(double value) { seconds.push_back(value); }
  bool empty() const { return seconds.empty(); }
  double median() const;  // of an even number: the mean of the middle two; 0 of none
  double min() const;     // 0 of none
  double sum() const;
};

// Returns the median of a[i] / b[i] for alternating runs. Disturbances slow down both sides, so
// this is more stable than the ratio of the medians. Throws InternalError unless both have the same
// number of runs.
double paired_ratio(const Samples& a, const Samples& b);

// Returns the processor time used by this process so far, over all threads.
double process_cpu_seconds();

}  // namespace shale::bench
