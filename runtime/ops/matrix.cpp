#include "shale/runtime/ops/matrix.h"

#include <utility>

#include "shale/kernels/gemm.h"

namespace shale {

View as_matrix(const Tensor& x) {
  View view = x.view();
  return make_view(view.data, view.dtype, {view.rows(), view.cols()});
}

View transposed(const View& matrix) {
  View view = matrix;
  std::swap(view.shape[0], view.shape[1]);
  std::swap(view.strides[0], view.strides[1]);
  return view;
}

Exec StepHold::exec(const Tensor& x) const {
  Exec exec = x.exec();
  exec.step = static_cast<StepState*>(storage_->data());
  return exec;
}

Shape with_last(const Shape& shape, int64_t last) {
  Shape result = shape;
  result[result.ndim() - 1] = last;
  return result;
}

void emit_weight_grad(BackwardArgs& args, int input, const Tensor& weight, Grads& grads,
                      const View& dy, const View& x) {
  emit_grad(args, {input, weight, dy.dtype}, grads, [&](const Tensor& dw, bool accumulate) {
    kernels::gemm(dw.exec(), {.a = transposed(dy), .b = x, .c = dw, .accumulate = accumulate});
  });
}

}  // namespace shale
