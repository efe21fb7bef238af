#pragma once

#include "shale/bench/support/bench_device.h"
#include "shale/bench/support/timing.h"
#include "shale/runtime/kernel_check/operands.h"

namespace shale::bench {

// Times of Shale's kernel, the vendor's kernel and a foreign kernel, run alternately: equal numbers
// of runs of each kernel that exists.
struct Measured {
  Samples ours, vendor, foreign;
};

// Warms up, then measures for at least min_time_s seconds. A sample is the mean of several calls in
// a row, enough for the resolution of the device's clock.
Measured measure(BenchDevice& device, const PreparedCase& prepared, double min_time_s);

}  // namespace shale::bench
