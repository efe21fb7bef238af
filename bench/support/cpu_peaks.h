#pragma once

#include "shale/bench/support/peaks.h"

namespace shale::bench {

// Takes about `seconds` per number. Uses the threads of omp_set_num_threads().
Peaks measure_cpu_peaks(double seconds);

}  // namespace shale::bench
