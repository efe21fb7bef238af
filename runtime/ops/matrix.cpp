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

namespace {

void weight_grad(const Tensor& dw, bool accumulate, const Tensor& dy, const Tensor& x) {
  kernels::gemm(dw.exec(), {.a = transposed(as_matrix(dy)),
                            .b = as_matrix(x),
                            .c = dw,
                            .accumulate = accumulate});
}

// Later, as now: straight to where it stays, if that takes the dtype.
void defer_weight_grad(DeferredGrads& rest, const Tensor& leaf, const Tensor& dy,
                       const Tensor& x) {
  rest.add({leaf}, [leaf, dy, x] {
    if (const auto to = claim_leaf_grad(leaf, dy.dtype())) {
      return weight_grad(to->grad, to->accumulate, dy, x);
    }
    const Tensor grad = empty(leaf.context(), leaf.shape(), DType::kF32, MemoryTag::kGradient);
    weight_grad(grad, false, dy, x);
    add_leaf_grad(leaf, grad);
  });
}

}  // namespace

void emit_weight_grad(BackwardArgs& args, int input, const Tensor& weight, Grads& grads,
                      const Tensor& dy, const Tensor& x) {
  DeferredGrads* rest = args.deferred();
  if (rest != nullptr && args.leaf(input).defined()) {
    return defer_weight_grad(*rest, args.leaf(input), dy, x);
  }
  emit_grad(args, {input, weight, dy.dtype()}, grads,
            [&](const Tensor& dw, bool accumulate) { weight_grad(dw, accumulate, dy, x); });
}

}  // namespace shale
