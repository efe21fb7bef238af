#include "shale/runtime/ops/reduce.h"

#include "shale/kernels/elementwise.h"
#include "shale/kernels/reduce.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/matrix.h"
#include "shale/runtime/tensor/op_recorder.h"

namespace shale {
namespace {

Tensor scaled_sum(const char* op, const Tensor& x, double factor) {
  check_contiguous(op, "x", x);
  const Tensor input = cast(x, DType::kF32);
  Tensor y = empty(x.context(), {}, DType::kF32);
  kernels::sum(x.exec(), {.x = input, .y = y, .scale = factor});
  if (OpRecorder* to = recorder_of(y)) to->add(op, {input}, {y});
  record(op, {input}, {&y}, [shape = x.shape(), factor](BackwardArgs& args) {
    Tensor dx = full(args.dy().context(), shape, DType::kF32, factor);
    kernels::mul(dx.exec(), {.a = dx, .b = args.dy(), .y = dx});
    return Grads{dx};
  });
  return y;
}

}  // namespace

Tensor sum(const Tensor& x) {
  return scaled_sum("sum", x, 1);
}

Tensor mean(const Tensor& x) {
  if (x.numel() == 0) throw ShapeError(cat("mean: x is ", x.shape(), ", expected sizes above 0"));
  return scaled_sum("mean", x, 1.0 / static_cast<double>(x.numel()));
}

Tensor column_sum(const Tensor& x) {
  check_contiguous("column_sum", "x", x);
  Tensor y = empty(x.context(), {x.size(-1)}, DType::kF32);
  kernels::column_sum(x.exec(), {.x = as_matrix(x), .y = y});
  if (OpRecorder* to = recorder_of(y)) to->add("column_sum", {x}, {y});
  record("column_sum", {x}, {&y}, [shape = x.shape(), dtype = x.dtype()](BackwardArgs& args) {
    // Copies dy to every row of dx: a view with row stride 0 repeats it.
    const Tensor dy = cast(args.dy(), dtype);
    Tensor dx = empty(dy.context(), shape, dtype);
    const View to = as_matrix(dx);
    View rows = dy.view();
    rows.shape = to.shape;
    rows.strides = {0, 1};
    kernels::copy(dx.exec(), {.x = rows, .y = to});
    return Grads{dx};
  });
  return y;
}

}  // namespace shale
