#pragma once

#include <algorithm>
#include <map>

#include "bench/support/cost.h"
#include "runtime/base/dtype.h"

namespace shale::bench {

// What this machine can do with so many threads, measured just now with nothing of Shale's.
struct Peaks {
  double copy = 0;    // bytes/s read and written by memcpy
  double triad = 0;   // bytes/s of a = b + s c, as STREAM counts: two read, one written
  double update = 0;  // bytes/s of a += s b, two read, one written; in place, nothing else moves
  double read = 0;    // bytes/s of a sum
  std::map<DType, double> gemm;  // FLOP/s of oneDNN's best large product; absent: not supported

  double read_write() const { return std::max({copy, triad, update}); }
  // The time that the work takes at the speed that bounds it; 0 for no work.
  double bound_seconds(const Cost& cost, DType dtype) const;
  // Whether arithmetic bounds it, rather than memory.
  bool compute_bound(const Cost& cost, DType dtype) const;
};

// Takes some `seconds` per number. omp_set_num_threads() says how many threads.
Peaks measure_peaks(double seconds);

// Of the last-level cache that this process's CPUs share; 0: unknown.
int64_t last_level_cache_bytes();

}  // namespace shale::bench
