#include "shale/kernels/reduce.h"

#include "shale/kernels/check.h"

namespace shale::kernels {
void check_args(const ColumnSumArgs& a) {
  constexpr const char* kOp = "column_sum";
  check_dtype(kOp, "x", a.x, kComputeDTypes);
  if (a.x.ndim() != 2 || (a.x.size(1) > 1 && a.x.stride(1) != 1)) {
    throw ShapeError(cat(kOp, ": x is ", a.x, " with strides ", a.x.strides,
                         ", expected [rows, C] with contiguous rows"));
  }
  check_gradient(kOp, "y", a.y, a.x.size(1));
}

void check_args(const SumArgs& a) {
  constexpr const char* kOp = "sum";
  check_dtype(kOp, "x", a.x, DType::kF32);
  check_contiguous(kOp, "x", a.x);
  check_dtype(kOp, "y", a.y, DType::kF32);
  if (a.y.numel() != 1) throw ShapeError(cat(kOp, ": y is ", a.y, ", expected one element"));
}

void check_args(const SumSquaresArgs& a) {
  constexpr const char* kOp = "sum_squares";
  check_dtype(kOp, "x", a.x, {DType::kF32, DType::kBF16});
  check_contiguous(kOp, "x", a.x);
  if (a.sum == nullptr) throw InternalError(cat(kOp, ": sum is null"));
}

void check_args(const ClipFactorArgs& a) {
  if (a.sum == nullptr) throw InternalError("clip_factor: sum is null");
}

}  // namespace shale::kernels
