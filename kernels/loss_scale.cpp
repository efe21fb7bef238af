#include "shale/kernels/loss_scale.h"

#include "shale/kernels/check.h"

namespace shale::kernels {

void check_args(const SkipOutlierArgs& a) {
  check_dense("skip_outliers", "norms", a.norms, {a.norms.numel()}, DType::kF32);
  check_dense("skip_outliers", "count", a.count, {}, DType::kI64);
  if (a.norms.numel() >= 2) return;
  throw ShapeError(cat("skip_outliers: norms is ", a.norms, ", expected at least 2 elements"));
}

}  // namespace shale::kernels
