#pragma once

#include "shale/bench/support/peaks.h"

namespace shale::bench {

// Measures the peaks, for about `seconds` each, with the threads of omp_set_num_threads().
Peaks measure_cpu_peaks(double seconds);

}  // namespace shale::bench
