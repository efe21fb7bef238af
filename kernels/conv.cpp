#include "shale/kernels/conv.h"

#include "shale/kernels/check.h"

namespace shale::kernels {
namespace {

void check_windows(const char* op, const Windows& windows) {
  if (windows.stride >= 1 && windows.padding >= 0) return;
  throw ShapeError(cat(op, ": stride is ", windows.stride, " and padding ", windows.padding,
                       ", expected a stride of at least 1 and a padding of at least 0"));
}

// Checks x [N, H, W, C] and y against the weight [O, C, kh, kw].
void check_images(const char* op, const char* x_name, const View& x, const View& weight,
                  const char* y_name, const View& y, const Windows& windows) {
  check_windows(op, windows);
  check_dtype(op, x_name, x, kComputeDTypes);
  if (x.ndim() != 4 || weight.ndim() != 4 || weight.size(1) != x.size(3) || weight.numel() == 0) {
    throw ShapeError(cat(op, ": ", x_name, " is ", x, ", weights are ", weight,
                         ", expected [N, H, W, C] and [O, C, kh, kw] with O, C, kh, kw > 0"));
  }
  const int64_t rows = windows.count(x.size(1), weight.size(2));
  const int64_t cols = windows.count(x.size(2), weight.size(3));
  if (rows < 1 || cols < 1) {
    throw ShapeError(cat(op, ": ", x_name, " is ", x, " with a padding of ", windows.padding,
                         ", smaller than a window of ", weight));
  }
  check_contiguous(op, x_name, x);
  check_contiguous(op, "weight", weight);
  check_dense(op, y_name, y, {x.size(0), rows, cols, weight.size(0)}, x.dtype);
}

}  // namespace

void check_args(const ConvArgs& a) {
  constexpr const char* kOp = "conv";
  check_images(kOp, "x", a.x, a.weight, "y", a.y, a.windows);
  check_dtype(kOp, "weight", a.weight, a.x.dtype);
  if (a.bias.defined()) check_dense(kOp, "bias", a.bias, {a.weight.size(0)}, a.x.dtype);
}

void check_args(const ConvInputGradArgs& a) {
  constexpr const char* kOp = "conv_input_grad";
  check_images(kOp, "dx", a.dx, a.weight, "dy", a.dy, a.windows);
  check_dtype(kOp, "weight", a.weight, a.dx.dtype);
}

void check_args(const ConvWeightGradArgs& a) {
  constexpr const char* kOp = "conv_weight_grad";
  check_images(kOp, "x", a.x, a.dweight, "dy", a.dy, a.windows);
  check_dtype(kOp, "dweight", a.dweight, kGradientDTypes);
}

}  // namespace shale::kernels
