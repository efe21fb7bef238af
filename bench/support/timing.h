#pragma once

#include <chrono>
#include <vector>

#include "shale/base/clock.h"

namespace shale::bench {

using Clock = std::chrono::steady_clock;

// Returns the seconds of one call of fn.
template <typename Fn>
double time_once(Fn&& fn) {
  const Clock::time_point start = Clock::now();
  fn();
  return seconds_since(start);
}

// Seconds of several runs of the same work. The median is what a user sees; the minimum excludes
// disturbances.
struct Samples {
  std::vector<double> seconds;

  void add(double value) { seconds.push_back(value); }
  bool empty() const { return seconds.empty(); }
  double median() const;  // mean of the middle two if their number is even; 0 for no runs
  double min() const;     // shortest time; 0 for no runs
  double sum() const;
};

// Returns the median of a[i] / b[i], for runs in turn. Disturbances slow down both kinds of runs,
// so it is more stable than the ratio of the medians. Throws InternalError unless a and b have the
// same number of runs.
double paired_ratio(const Samples& a, const Samples& b);

// Returns the processor time used by this process so far, over all threads.
double process_cpu_seconds();

}  // namespace shale::bench
