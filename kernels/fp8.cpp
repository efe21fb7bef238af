#include "shale/kernels/fp8.h"

#include "shale/kernels/check.h"

namespace shale::kernels {

void check_args(const RoundToFp8Args& a) {
  constexpr const char* kOp = "round_to_fp8";
  check_dtype(kOp, "x", a.x, {DType::kF32, DType::kBF16});
  check_contiguous(kOp, "x", a.x);
  if (a.x.ndim() != 2) throw ShapeError(cat(kOp, ": x is ", a.x, ", want [rows, columns]"));
  check_dense(kOp, "y", a.y, a.x.shape, a.x.dtype);
  const auto is_size = [](int64_t size) { return size == 1 || size == kFp8Block; };
  if (!is_size(a.block_rows) || !is_size(a.block_columns) || a.block_rows * a.block_columns == 1) {
    throw ShapeError(cat(kOp, ": blocks are ", a.block_rows, " x ", a.block_columns, ", want 1 x ",
                         kFp8Block, ", ", kFp8Block, " x 1 or ", kFp8Block, " x ", kFp8Block));
  }
}

}  // namespace shale::kernels
