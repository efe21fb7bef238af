#pragma once

#include "shale/bench/support/operands.h"
#include "shale/bench/support/timing.h"

namespace shale::bench {

// Runs that took turns: as many of one side as of the other, if there is another.
struct Measured {
  Samples ours, vendor;
};

// Warms up, then measures for at least so many seconds. A sample is as many calls in a row as the
// device's clock needs, and counts as their mean.
Measured measure(BenchDevice& device, const PreparedCase& prepared, double min_time_s);

}  // namespace shale::bench
