#include "shale/kernels/pool.h"

#include "shale/kernels/check.h"

namespace shale::kernels {
namespace {

constexpr int64_t kMaxKernel = 16;  // a position in a window must fit in 8 bits

void check_pool(const char* op, const char* x_name, const View& x, const char* y_name,
                const View& y, const View& place, int64_t kernel, const Windows& windows) {
  check_dtype(op, x_name, x, kComputeDTypes);
  if (kernel < 1 || kernel > kMaxKernel || windows.stride < 1 || windows.padding < 0 ||
      windows.padding >= kernel) {
    throw ShapeError(cat(op, ": kernel is ", kernel, ", stride is ", windows.stride,
                         ", padding is ", windows.padding, ", expected a kernel of 1 to ",
                         kMaxKernel,
                         ", a stride of at least 1, and a padding from 0 to below the kernel"));
  }
  if (x.ndim() != 4 || windows.count(x.size(1), kernel) < 1 ||
      windows.count(x.size(2), kernel) < 1) {
    throw ShapeError(cat(op, ": ", x_name, " is ", x, ", expected [N, H, W, C] of at least ",
                         kernel, " x ", kernel, " pixels with the padding"));
  }
  const Shape out = {x.size(0), windows.count(x.size(1), kernel), windows.count(x.size(2), kernel),
                     x.size(3)};
  check_contiguous(op, x_name, x);
  check_dense(op, y_name, y, out, x.dtype);
  check_dense(op, "place", place, out, DType::kU8);
}

}  // namespace

void check_args(const MaxPoolArgs& a) {
  check_pool("max_pool", "x", a.x, "y", a.y, a.place, a.kernel, a.windows);
}

void check_args(const MaxPoolGradArgs& a) {
  check_pool("max_pool_grad", "dx", a.dx, "dy", a.dy, a.place, a.kernel, a.windows);
}

}  // namespace shale::kernels
