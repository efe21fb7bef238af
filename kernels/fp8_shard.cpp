#include "shale/kernels/fp8_shard.h"

#include "shale/kernels/check.h"

namespace shale::kernels {
namespace {

void check_largest(const char* op, const View& largest, const Shape& matrix) {
  check_dtype(op, "largest", largest, DType::kI32);
  check_contiguous(op, "largest", largest);
  const Shape squares = fp8_weight_blocks(Fp8Blocks::kSquares, matrix);
  if (largest.shape == squares || largest.shape == Shape{1, 1}) return;
  throw ShapeError(cat(op, ": largest is ", largest, " of a matrix ", matrix, ", expected ",
                       squares, " or [1,1]"));
}

void check_codes(const char* op, const View& codes, const View& largest) {
  check_dtype(op, "codes", codes, DType::kU8);
  check_contiguous(op, "codes", codes);
  if (codes.ndim() != 2)
    throw ShapeError(cat(op, ": codes are ", codes, ", expected [rows, columns]"));
  check_largest(op, largest, codes.shape);
}

void check_range(const char* op, const View& x, int64_t first, int64_t columns,
                 const View& largest) {
  check_dense(op, "x", x, {x.numel()}, DType::kF32);
  if (columns < 1 || first < 0) {
    throw ShapeError(cat(op, ": x begins at element ", first, " of a matrix with rows of ", columns,
                         " columns, expected 0 or more, and 1 column or more"));
  }
  check_dtype(op, "largest", largest, DType::kI32);
  check_contiguous(op, "largest", largest);
  // matrix rows up to the end of x
  const int64_t rows = (first + x.numel() + columns - 1) / columns;
  const Shape least = fp8_weight_blocks(Fp8Blocks::kSquares, {rows, columns});
  const bool fits =
      largest.ndim() == 2 && largest.size(0) >= least[0] && largest.size(1) == least[1];
  if (fits || largest.shape == Shape{1, 1}) return;
  throw ShapeError(cat(op, ": largest is ", largest, ", but x covers ", rows, " rows of ", columns,
                       " columns; expected a largest of at least ", least, ", or of [1,1]"));
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
  check_codes("fp8_decode", a.codes, a.largest);
  check_dense("fp8_decode", "y", a.y, a.codes.shape, DType::kBF16);
}

void check_args(const Fp8OperandsArgs& a) {
  constexpr const char* kOp = "fp8_operands";
  check_codes(kOp, a.codes, a.largest);
  if (!a.rows.defined() && !a.columns.defined()) {
    throw ShapeError(cat(kOp, ": neither rows nor columns are requested, expected at least one"));
  }
  const auto check = [&](const char* name, const Fp8Operand& operand, const Shape& shape) {
    if (!operand.defined()) return;
    check_fp8_operand(kOp, name, operand);
    check_shape(kOp, name, operand.codes, shape);
    const bool fits = operand.blocks != Fp8Blocks::kLines &&
                      fp8_weight_blocks(operand.blocks, a.codes.shape) == a.largest.shape;
    if (!fits)
      throw ShapeError(
          cat(kOp, ": ", name, " have other blocks than largest, which is ", a.largest));
    if (operand.format == Fp8Format::kE4M3) return;
    throw DTypeError(cat(kOp, ": ", name, " have the format E5M2, expected E4M3"));
  };
  check("rows", a.rows, a.codes.shape);
  check("columns", a.columns, {a.codes.size(1), a.codes.size(0)});
}

}  // namespace shale::kernels
