#include "shale/kernels/random.h"

#include "shale/kernels/check.h"

namespace shale::kernels {
void check_args(const RandomNormalArgs& a) {
  constexpr const char* kOp = "random_normal";
  check_dtype(kOp, "y", a.y, kComputeDTypes);
  check_contiguous(kOp, "y", a.y);
  if (a.first < 0) throw ShapeError(cat(kOp, ": first is ", a.first, ", want 0 or more"));
}

}  // namespace shale::kernels
