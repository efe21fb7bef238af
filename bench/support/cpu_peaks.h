#pragma once

#include "shale/bench/support/peaks.h"

namespace shale::bench {

// Takes some `seconds` per number. omp_set_num_threads() says how many threads.
Peaks measure_cpu_peaks(double seconds);

}  // namespace shale::bench
