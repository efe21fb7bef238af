#include "shale/bench/support/timing.h"

#include <algorithm>
#include <ctime>
#include <numeric>

#include "shale/base/error.h"

namespace shale::bench {
namespace {

double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  const size_t half = values.size() / 2;
  std::nth_element(values.begin(), values.begin() + std::ptrdiff_t(half), values.end());
  const double upper = values[half];
  if (values.size() % 2 == 1) return upper;
  return (*std::max_element(values.begin(), values.begin() + std::ptrdiff_t(half)) + upper) / 2;
}

}  // namespace

double Samples::median() const { return median_of(seconds); }

double Samples::min() const {
  return seconds.empty() ? 0 : *std::min_element(seconds.begin(), seconds.end());
}

double Samples::sum() const { return std::accumulate(seconds.begin(), seconds.end(), 0.0); }

double paired_ratio(const Samples& a, const Samples& b) {
  if (a.seconds.size() != b.seconds.size()) {
    throw InternalError(cat("paired_ratio: ", a.seconds.size(), " runs against ", b.seconds.size(),
                            ", expected equal numbers"));
  }
  std::vector<double> ratios;
  for (size_t i = 0; i < a.seconds.size(); ++i) ratios.push_back(a.seconds[i] / b.seconds[i]);
  return median_of(std::move(ratios));
}

double process_cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return double(time.tv_sec) + double(time.tv_nsec) * 1e-9;
}

}  // namespace shale::bench
