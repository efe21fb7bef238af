#include "shale/kernels/copy_plan.h"

#include <algorithm>

namespace shale::kernels {

CopyPlan::CopyPlan(const View& from, const View& to) {
  for (int i = 0; i < from.ndim(); ++i) {
    if (from.shape[i] != 1) {
      dims[size_t(count++)] = {from.shape[i], from.strides[i], to.strides[i]};
    }
  }
  std::stable_sort(dims.begin(), dims.begin() + count,
                   [](const CopyDim& a, const CopyDim& b) { return a.y > b.y; });
  merge();
  while (count < 2) {
    std::copy_backward(dims.begin(), dims.begin() + count, dims.begin() + count + 1);
    dims[0] = {1, 0, 0};
    ++count;
  }
}

// Merges an outer dimension into the inner one if its elements continue where the inner one ends.
void CopyPlan::merge() {
  int kept = 0;
  for (int i = 0; i < count; ++i) {
    const CopyDim next = dims[size_t(i)];
    if (kept > 0) {
      CopyDim& last = dims[size_t(kept - 1)];
      if (last.x == next.size * next.x && last.y == next.size * next.y) {
        last = {last.size * next.size, next.x, next.y};
        continue;
      }
    }
    dims[size_t(kept++)] = next;
  }
  count = kept;
}

}  // namespace shale::kernels
