#pragma once

#include <array>

#include "shale/base/view.h"

namespace shale::kernels {

struct CopyDim {
  int64_t size, x, y;  // size of the dimension; x, y: strides in elements
};

// The dimensions over which a copy from x to y iterates; x and y have the same shape. They are
// sorted by y's strides, the outermost dimension first. Dimensions that both views allow to merge
// are merged. If fewer than two are left, dimensions of size 1 are added.
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
