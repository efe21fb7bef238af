#include "shale/kernels/fp8_shard.h"

#include "shale/kernels/check.h"

namespace shale::kernels {
namespace {

void check_largest(const char* op, const View& largest, const Shape& matrix) {
  check_dtype(op, "largest", largest, DType::kI32);
  check_contiguous(op, "largest", largest);
  const Shape squares = fp8_weight_blocks(Fp8Blocks::kSquares, matrix);
  if (largest.shape == squares || largest.shape == Shape{1, 1}) return;
  throw ShapeError(
      cat(op, ": largest is ", largest, " of a matrix ", matrix, ", want ", squares, " or [1,1]"));
}

void check_range(const char* op, const View& x, int64_t first, int64_t columns,
                 const View& largest) {
  check_dense(op, "x", x, {x.numel()}, DType::kF32);
  if (columns < 1 || first < 0) {
    throw ShapeError(cat(op, ": x is from element ", first, " on of rows of ", columns,
                         ", want 0 or more, and 1 or more"));
  }
  check_dtype(op, "largest", largest, DType::kI32);
  check_contiguous(op, "largest", largest);
  const int64_t rows = (first + x.numel() + columns - 1) / columns;  // as far as the range goes
  const Shape least = fp8_weight_blocks(Fp8Blocks::kSquares, {rows, columns});
  const bool fits =
      largest.ndim() == 2 && largest.size(0) >= least[0] && largest.size(1) == least[1];
  if (fits || largest.shape == Shape{1, 1}) return;
  throw ShapeError(cat(op, ": largest is ", largest, " where x ends in row ", rows, " of ", columns,
                       " columns, want at least ", least, ", or [1,1]"));
}

}  // namespace

void check_args(const Fp8LargestArgs& a) {
  check_range("fp8_largest", a.x, a.first, a.columns, a.largest);
}

void check_args(const Fp8EncodeArgs& a) {
  check_range("fp8_encode", a.x, a.first, a.columns, a.largest);
  check_dense("fp8_encode", "codes", a.codes, a.x.shape, DType::kU8);
}

void check_args(const Fp8DecodeArgs& a) {
  check_dtype("fp8_decode", "codes", a.codes, DType::kU8);
  check_contiguous("fp8_decode", "codes", a.codes);
  if (a.codes.ndim() != 2) {
    throw ShapeError(cat("fp8_decode: codes are ", a.codes, ", want [rows, columns]"));
  }
  check_largest("fp8_decode", a.largest, a.codes.shape);
  check_dense("fp8_decode", "y", a.y, a.codes.shape, DType::kBF16);
}

}  // namespace shale::kernels
