#include "shale/kernels/check.h"
#include "shale/kernels/check_args.h"

namespace shale::kernels {
namespace {

// What every optimizer asks of its first arguments.
void check_optim_span(const char* op, const View& master, const View& grad, const View& param) {
  check_dtype(op, "master", master, DType::kF32);
  check_contiguous(op, "master", master);
  check_shape(op, "grad", grad, master.shape);
  check_dtype(op, "grad", grad, {DType::kF32, DType::kBF16});
  check_contiguous(op, "grad", grad);
  if (!param.defined()) return;
  check_shape(op, "param", param, master.shape);
  check_dtype(op, "param", param, {DType::kBF16, DType::kF16});
  check_contiguous(op, "param", param);
}

// A parameter that has no master.
void check_rounded_span(const char* op, const AdamWArgs& a) {
  check_contiguous(op, "master", a.master);
  check_shape(op, "grad", a.grad, a.master.shape);
  check_dtype(op, "grad", a.grad, {DType::kF32, DType::kBF16});
  check_contiguous(op, "grad", a.grad);
  if (a.param.defined()) {
    throw DTypeError(cat(op, ": master is ", a.master, " beside a param, want fp32"));
  }
  const int64_t first = a.rounding.first, end = first + a.master.numel();
  if (first >= 0 && end <= int64_t{1} << 34) return;
  throw ShapeError(cat(op, ": master is elements ", first, " to ", end - 1,
                       " of its parameter, want them in 0 to 2^34"));
}

// ---- Adafactor ----

void check_part(const char* op, const MatrixPart& part, const View& grad) {
  check_dtype(op, "grad", grad, {DType::kF32, DType::kBF16});
  check_contiguous(op, "grad", grad);
  const int64_t numel = part.rows * part.cols;
  if (part.first < 0 || part.first + grad.numel() > numel) {
    throw ShapeError(cat(op, ": grad is elements ", part.first, " to ", part.first + grad.numel(),
                         ", the parameter has ", numel));
  }
}

// r and c, or v.
void check_moments(const char* op, const MatrixPart& part, const View& grad, const View& row,
                   const View& col, const View& v) {
  if (v.defined()) return check_dense(op, "v", v, grad.shape, DType::kF32);
  check_dense(op, "row", row, {part.rows}, DType::kF32);
  check_dense(op, "col", col, {part.cols}, DType::kF32);
}

}  // namespace

void check_args(const AdamWArgs& a) {
  if (a.master.dtype == DType::kBF16) {
    check_rounded_span("adamw", a);
  } else {
    check_optim_span("adamw", a.master, a.grad, a.param);
  }
  check_dtype("adamw", "m", a.m, {DType::kF32, DType::kBF16});
  check_dense("adamw", "m", a.m, a.master.shape, a.m.dtype);
  check_dense("adamw", "v", a.v, a.master.shape, a.m.dtype);
}

void check_args(const AdamW8bitArgs& a) {
  constexpr const char* kOp = "adamw_8bit";
  check_optim_span(kOp, a.master, a.grad, a.param);
  check_dense(kOp, "m", a.m, a.master.shape, DType::kU8);
  check_dense(kOp, "v", a.v, a.master.shape, DType::kU8);
  const Shape scales = {(a.master.numel() + kMomentBlock - 1) / kMomentBlock};
  check_dense(kOp, "m_scale", a.m_scale, scales, DType::kF32);
  check_dense(kOp, "v_scale", a.v_scale, scales, DType::kF32);
}

void check_args(const LionArgs& a) {
  check_optim_span("lion", a.master, a.grad, a.param);
  check_dtype("lion", "m", a.m, {DType::kF32, DType::kBF16});
  check_dense("lion", "m", a.m, a.master.shape, a.m.dtype);
}

void check_args(const SgdArgs& a) {
  check_optim_span("sgd", a.master, a.grad, a.param);
  if (a.m.defined()) check_dense("sgd", "m", a.m, a.master.shape, DType::kF32);
}

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
