#pragma once

#include <array>

#include "shale/base/view.h"

namespace shale::kernels {

struct CopyDim {
  int64_t size, x, y;  // strides in elements
};

// The dimensions of a copy from x to y, which have one shape: outermost first, ordered by y's
// strides, merged where both views allow it, padded with ones to at least two.
struct CopyPlan {
  std::array<CopyDim, kMaxDims + 2> dims;
  int count = 0;

  CopyPlan(const View& from, const View& to);
  const CopyDim& inner() const { return dims[size_t(count - 1)]; }
  const CopyDim& rows() const { return dims[size_t(count - 2)]; }

 private:
  void merge();
};

}  // namespace shale::kernels
