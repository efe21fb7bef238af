#include "shale/bench/support/measure.h"

#include <algorithm>
#include <cmath>

namespace shale::bench {
namespace {

constexpr size_t kFewestSamples = 3;
constexpr int kMostCalls = 1000;

}  // namespace

Measured measure(BenchDevice& device, const PreparedCase& prepared, double min_time_s) {
  double warm_s = 0;
  for (int i = 0; i < 2; ++i) {  // the first calls load code and map memory
    warm_s = device.seconds_per_call(1, prepared.run);
    if (prepared.vendor) device.seconds_per_call(1, prepared.vendor);
    if (prepared.foreign) device.seconds_per_call(1, prepared.foreign);
  }
  const double wanted = std::ceil(device.shortest_sample_s() / std::max(warm_s, 1e-9));
  const int calls = int(std::clamp(wanted, 1.0, double(kMostCalls)));
  Measured measured;
  const Clock::time_point begin = Clock::now();
  while (measured.ours.seconds.size() < kFewestSamples || seconds_since(begin) < min_time_s) {
    measured.ours.add(device.seconds_per_call(calls, prepared.run));
    // The kernels run in turn, so that disturbances affect all of them.
    if (prepared.vendor) measured.vendor.add(device.seconds_per_call(calls, prepared.vendor));
    if (prepared.foreign) measured.foreign.add(device.seconds_per_call(calls, prepared.foreign));
  }
  return measured;
}

}  // namespace shale::bench
