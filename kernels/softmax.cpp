#include "shale/kernels/softmax.h"

#include "shale/kernels/check.h"

namespace shale::kernels {
namespace {

void check_rows(const char* op, const char* arg, const View& view) {
  check_dtype(op, arg, view, kComputeDTypes);
  check_contiguous(op, arg, view);
  if (view.ndim() != 2) throw ShapeError(cat(op, ": ", arg, " is ", view, ", expected [rows, C]"));
}

}  // namespace

void check_args(const SoftmaxFwdArgs& a) {
  check_rows("softmax_fwd", "x", a.x);
  check_dense("softmax_fwd", "y", a.y, a.x.shape, a.x.dtype);
}

void check_args(const SoftmaxBwdArgs& a) {
  check_rows("softmax_bwd", "y", a.y);
  check_dense("softmax_bwd", "dy", a.dy, a.y.shape, a.y.dtype);
  check_dense("softmax_bwd", "dx", a.dx, a.y.shape, a.y.dtype);
}

}  // namespace shale::kernels
