#include "shale/kernels/batch_norm.h"

#include "shale/kernels/check.h"

namespace shale::kernels {
namespace {

constexpr DType kF32 = DType::kF32;

void check_rows(const char* op, const char* arg, const View& x) {
  check_dtype(op, arg, x, kComputeDTypes);
  check_contiguous(op, arg, x);
  if (x.ndim() == 2 && x.size(1) > 0) return;
  throw ShapeError(cat(op, ": ", arg, " is ", x, ", expected [rows, C] with C > 0"));
}

void check_like(const char* op, const char* arg, const View& view, const View& main) {
  check_dense(op, arg, view, main.shape, main.dtype);
}

void check_channels(const char* op, const char* arg, const View& view, int64_t channels) {
  check_dense(op, arg, view, {channels}, kF32);
}

}  // namespace

void check_args(const BatchMomentsArgs& a) {
  constexpr const char* kOp = "batch_moments";
  check_rows(kOp, "x", a.x);
  check_channels(kOp, "moments", a.moments, 2 * a.x.size(1) + 1);
}

void check_args(const BatchMergeArgs& a) {
  constexpr const char* kOp = "batch_merge";
  check_defined(kOp, "mean", a.mean);
  const int64_t channels = a.mean.numel();
  if (a.moments.ndim() != 2 || a.moments.size(0) < 1) {
    throw ShapeError(cat(kOp, ": moments are ", a.moments, ", expected [sets, 2 C + 1]"));
  }
  check_dense(kOp, "moments", a.moments, {a.moments.size(0), 2 * channels + 1}, kF32);
  check_channels(kOp, "mean", a.mean, channels);
  check_channels(kOp, "rstd", a.rstd, channels);
  check_channels(kOp, "count", a.count, 1);
  if (!a.running_mean.defined()) return;
  check_channels(kOp, "running_mean", a.running_mean, channels);
  check_channels(kOp, "running_variance", a.running_variance, channels);
}

void check_args(const BatchNormArgs& a) {
  constexpr const char* kOp = "batch_norm";
  check_rows(kOp, "x", a.x);
  const int64_t channels = a.x.size(1);
  check_channels(kOp, "mean", a.mean, channels);
  check_channels(kOp, "rstd", a.rstd, channels);
  check_dense(kOp, "gain", a.gain, {channels}, a.x.dtype);
  check_dense(kOp, "bias", a.bias, {channels}, a.x.dtype);
  if (a.residual.defined()) check_like(kOp, "residual", a.residual, a.x);
  check_like(kOp, "y", a.y, a.x);
}

namespace {

// Checks the inputs that both backward steps share; returns the number of channels.
template <typename Args>
int64_t check_backward_inputs(const char* op, const Args& a) {
  check_rows(op, "dy", a.dy);
  const int64_t channels = a.dy.size(1);
  check_like(op, "x", a.x, a.dy);
  if (a.y.defined()) check_like(op, "y", a.y, a.dy);
  check_channels(op, "mean", a.mean, channels);
  check_channels(op, "rstd", a.rstd, channels);
  return channels;
}

}  // namespace

void check_args(const BatchNormSumsArgs& a) {
  constexpr const char* kOp = "batch_norm_sums";
  const int64_t channels = check_backward_inputs(kOp, a);
  check_dense(kOp, "sums", a.sums, {2, channels}, kF32);
  if (a.dgain.defined()) check_gradient(kOp, "dgain", a.dgain, channels);
  if (a.dbias.defined()) check_gradient(kOp, "dbias", a.dbias, channels);
}

void check_args(const BatchNormGradArgs& a) {
  constexpr const char* kOp = "batch_norm_grad";
  const int64_t channels = check_backward_inputs(kOp, a);
  check_dense(kOp, "gain", a.gain, {channels}, a.dy.dtype);
  if (a.sums.defined()) {
    check_dense(kOp, "sums", a.sums, {2, channels}, kF32);
    check_channels(kOp, "count", a.count, 1);
  }
  check_like(kOp, "dx", a.dx, a.dy);
  if (a.d_residual.defined()) check_like(kOp, "d_residual", a.d_residual, a.dy);
}

}  // namespace shale::kernels
