#pragma once

#include "shale/bench/support/bench_device.h"
#include "shale/bench/support/timing.h"
#include "shale/runtime/kernel_check/operands.h"

namespace shale::bench {

// Times of alternating runs: as many of Shale's kernel as of the vendor's and of a foreign one, if
// there are.
struct Measured {
  Samples ours, vendor, foreign;
};

// Warms up, then measures for at least min_time_s seconds. A sample is the mean of as many calls in
// a row as the device's clock requires.
Measured measure(BenchDevice& device, const PreparedCase& prepared, double min_time_s);

}  // namespace shale::bench
