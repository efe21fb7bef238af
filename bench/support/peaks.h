#pragma once

#include <algorithm>
#include <map>

#include "shale/base/dtype.h"
#include "shale/kernels/cost.h"

namespace shale::bench {

// Measured peaks of this machine, without any of Shale's kernels. 0: not measured.
struct Peaks {
  double copy = 0;               // memcpy, bytes/s read plus written; on a GPU cudaMemcpyAsync
  double triad = 0;              // a = b + s c as in STREAM, bytes/s: two read, one written
  double update = 0;             // a += s b in place, bytes/s: two read, one written
  double read = 0;               // sum of a, bytes/s
  std::map<DType, double> gemm;  // the vendor's best large GEMM, FLOP/s, if supported

  double read_write() const { return std::max({copy, triad, update}); }
  // Returns the time that the work takes at the peak that limits it. 0 if there is no work, or if
  // the peak was not measured.
  double bound_seconds(const kernels::Cost& cost, DType dtype) const;
  // Returns true if the work is bound by arithmetic rather than memory.
  bool compute_bound(const kernels::Cost& cost, DType dtype) const;
};

// Returns the bytes of the last-level cache shared by this process's CPUs; 0: unknown.
int64_t last_level_cache_bytes();

}  // namespace shale::bench
