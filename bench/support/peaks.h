#pragma once

#include <algorithm>
#include <map>

#include "shale/base/dtype.h"
#include "shale/kernels/cost.h"

namespace shale::bench {

// What this machine can do, measured just now with nothing of Shale's. 0: not measured.
struct Peaks {
  double copy = 0;    // bytes/s read and written by memcpy, on a GPU by cudaMemcpyAsync
  double triad = 0;   // bytes/s of a = b + s c, as STREAM counts: two read, one written
  double update = 0;  // bytes/s of a += s b, two read, one written; in place, nothing else moves
  double read = 0;    // bytes/s of a sum
  std::map<DType, double> gemm;  // FLOP/s of the vendor's best large product; absent: not supported

  double read_write() const { return std::max({copy, triad, update}); }
  // The time that the work takes at the speed that bounds it; 0 for no work, or if that speed was
  // not measured.
  double bound_seconds(const kernels::Cost& cost, DType dtype) const;
  // Whether arithmetic bounds it, rather than memory.
  bool compute_bound(const kernels::Cost& cost, DType dtype) const;
};

// Bytes of the last-level cache that this process's CPUs share; 0: unknown.
int64_t last_level_cache_bytes();

}  // namespace shale::bench
