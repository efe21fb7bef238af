#include "shale/kernels/norm.h"

#include "shale/kernels/check.h"

namespace shale::kernels {
namespace {

// Checks the main argument, [rows, C] with any number of leading dimensions.
void check_main(const char* op, const char* arg, const View& main) {
  check_dtype(op, arg, main, kComputeDTypes);
  check_contiguous(op, arg, main);
  if (main.ndim() >= 1 && main.cols() > 0) return;
  throw ShapeError(cat(op, ": ", arg, " is ", main, ", expected [rows, C] with C > 0"));
}

void check_like(const char* op, const char* arg, const View& view, const View& main) {
  check_dense(op, arg, view, main.shape, main.dtype);
}

void check_rows(const char* op, const char* arg, const View& view, const View& main) {
  check_dtype(op, arg, view, DType::kF32);
  check_contiguous(op, arg, view);
  if (view.numel() == main.rows()) return;
  throw ShapeError(cat(op, ": ", arg, " is ", view, ", expected ", main.rows(), " rows"));
}

// Checks the forward arguments that LayerNorm and RMSNorm share.
template <class Args>
void check_norm_fwd(const char* op, const Args& a) {
  check_main(op, "x", a.x);
  if (a.residual.defined()) {
    check_like(op, "residual", a.residual, a.x);
    check_defined(op, "sum", a.sum);
  }
  if (a.sum.defined()) check_like(op, "sum", a.sum, a.x);
  check_dense(op, "gain", a.gain, {a.x.cols()}, a.x.dtype);
  check_like(op, "y", a.y, a.x);
  check_rows(op, "rstd", a.rstd, a.x);
}

template <class Args>
void check_norm_bwd(const char* op, const Args& a) {
  check_main(op, "dy", a.dy);
  check_like(op, "s", a.s, a.dy);
  check_dense(op, "gain", a.gain, {a.dy.cols()}, a.dy.dtype);
  check_rows(op, "rstd", a.rstd, a.dy);
  if (a.d_sum.defined()) check_like(op, "d_sum", a.d_sum, a.dy);
  check_like(op, "dx", a.dx, a.dy);
  if (a.dgain.defined()) check_gradient(op, "dgain", a.dgain, a.dy.cols());
}

}  // namespace

void check_args(const LayerNormFwdArgs& a) {
  constexpr const char* kOp = "layer_norm_fwd";
  check_norm_fwd(kOp, a);
  if (a.bias.defined()) check_dense(kOp, "bias", a.bias, {a.x.cols()}, a.x.dtype);
  check_rows(kOp, "mean", a.mean, a.x);
}

void check_args(const LayerNormBwdArgs& a) {
  constexpr const char* kOp = "layer_norm_bwd";
  check_norm_bwd(kOp, a);
  check_rows(kOp, "mean", a.mean, a.dy);
  if (a.dbias.defined()) check_gradient(kOp, "dbias", a.dbias, a.dy.cols());
}

void check_args(const RmsNormFwdArgs& a) {
  check_norm_fwd("rms_norm_fwd", a);
}

void check_args(const RmsNormBwdArgs& a) {
  check_norm_bwd("rms_norm_bwd", a);
}

}  // namespace shale::kernels
