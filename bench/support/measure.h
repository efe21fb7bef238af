#pragma once

#include "shale/bench/support/operands.h"
#include "shale/bench/support/timing.h"

namespace shale::bench {

// Alternating runs: the same number of each side, if there are two.
struct Measured {
  Samples ours, vendor;
};

// Warms up, then measures for at least min_time_s. A sample is the mean of as many calls in a row
// as the device's clock requires.
Measured measure(BenchDevice& device, const PreparedCase& prepared, double min_time_s);

}  // namespace shale::bench
