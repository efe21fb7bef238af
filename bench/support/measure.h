#pragma once

#include "shale/bench/support/bench_device.h"
#include "shale/bench/support/timing.h"
#include "shale/runtime/kernel_check/operands.h"

namespace shale::bench {

// Times of Shale's kernel, the vendor's kernel and a user's kernel. They run in turn, so each
// kernel that exists runs equally often.
struct Measured {
  Samples ours, vendor, foreign;
};

// Warms up, then measures for at least min_time_s seconds. A sample is the mean of several calls in
// a row, so many that the resolution of the device's clock suffices.
Measured measure(BenchDevice& device, const PreparedCase& prepared, double min_time_s);

}  // namespace shale::bench
