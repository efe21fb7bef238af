#include "shale/kernels/adafactor.h"

#include "shale/kernels/check.h"

namespace shale::kernels {
namespace {

void check_part(const char* op, const MatrixRange& part, const View& grad) {
  check_dtype(op, "grad", grad, {DType::kF32, DType::kBF16});
  check_contiguous(op, "grad", grad);
  const int64_t numel = part.rows * part.cols;
  if (part.first < 0 || part.first + grad.numel() > numel) {
    throw ShapeError(cat(op, ": grad covers the elements ", part.first, " to ",
                         part.first + grad.numel(), ", expected an end of at most ", numel));
  }
}

// Checks the shapes of the second moments: r and c of a matrix, or v of another parameter.
void check_moments(const char* op, const MatrixRange& part, const View& grad, const View& row,
                   const View& col, const View& v) {
  if (v.defined()) return check_dense(op, "v", v, grad.shape, DType::kF32);
  check_dense(op, "row", row, {part.rows}, DType::kF32);
  check_dense(op, "col", col, {part.cols}, DType::kF32);
}

}  // namespace

void check_args(const AdafactorMeansArgs& a) {
  constexpr const char* kOp = "adafactor_means";
  check_part(kOp, a.part, a.grad);
  check_dense(kOp, "row_mean", a.row_mean, {a.part.rows}, DType::kF32);
  check_dense(kOp, "col_mean", a.col_mean, {a.part.cols}, DType::kF32);
}

void check_args(const AdafactorAverageArgs& a) {
  constexpr const char* kOp = "adafactor_average";
  check_dense(kOp, "mean", a.mean, a.newest.shape, DType::kF32);
  check_dense(kOp, "newest", a.newest, a.newest.shape, DType::kF32);
}

void check_args(const AdafactorSquaresArgs& a) {
  constexpr const char* kOp = "adafactor_squares";
  check_part(kOp, a.part, a.grad);
  check_moments(kOp, a.part, a.grad, a.row, a.col, a.v);
  check_dense(kOp, "sum", a.sum, {}, DType::kF32);
}

void check_args(const AdafactorArgs& a) {
  constexpr const char* kOp = "adafactor";
  check_optim_span(kOp, a.master, a.grad, a.param);
  check_part(kOp, a.part, a.grad);
  check_moments(kOp, a.part, a.grad, a.row, a.col, a.v);
  check_dense(kOp, "square_sum", a.square_sum, {}, DType::kF32);
}

}  // namespace shale::kernels
