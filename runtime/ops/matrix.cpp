#include "shale/runtime/ops/matrix.h"

#include <utility>

#include "shale/kernels/gemm.h"
#include "shale/runtime/ops/pointwise.h"
#include "shale/runtime/ops/weight_grad.h"

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

Tensor multiple_of_seed(const BackwardArgs& args) {
  if (args.dy_is_seed()) return {};
  return div(args.dy(), backward_seed(args.dy().context()));
}

int dim_index(const char* op, const Tensor& x, int dim) {
  check_defined(op, "x", x);
  const int index = dim < 0 ? dim + x.ndim() : dim;
  if (index < 0 || index >= x.ndim()) {
    throw ShapeError(cat(op, ": no dimension ", dim, " in ", x.shape()));
  }
  return index;
}

Shape with_last(const Shape& shape, int64_t last) {
  Shape result = shape;
  result[result.ndim() - 1] = last;
  return result;
}

namespace {

// Defers a weight gradient. If the dtypes allow it, the gradient is written directly into the
// leaf's gradient, as without deferring.
void defer_weight_grad(DeferredGrads& rest, const Tensor& leaf, DType also,
                       WeightProduct multiply) {
  rest.add({leaf}, [leaf, also, multiply = std::move(multiply)] {
    if (const auto to = claim_leaf_grad(leaf, also)) return multiply(to->grad, to->accumulate);
    const Tensor grad = empty(leaf.context(), leaf.shape(), DType::kF32, MemoryTag::kGradient);
    multiply(grad, false);
    add_leaf_grad(leaf, grad);
  });
}

}  // namespace

void emit_weight_grad(BackwardArgs& args, const GradOf& of, Grads& grads, WeightProduct multiply) {
  DeferredGrads* rest = args.deferred();
  if (rest != nullptr && args.leaf(of.input).defined()) {
    return defer_weight_grad(*rest, args.leaf(of.input), of.also, std::move(multiply));
  }
  emit_grad(args, of, grads, multiply);
}

void emit_weight_grad(BackwardArgs& args, int input, const Tensor& weight, Grads& grads,
                      const Tensor& dy, const Tensor& x) {
  emit_weight_grad(
      args, {input, weight, dy.dtype()}, grads, [dy, x](const Tensor& dw, bool accumulate) {
        kernels::gemm(
            dw.exec(),
            {.a = transposed(as_matrix(dy)), .b = as_matrix(x), .c = dw, .accumulate = accumulate});
      });
}

}  // namespace shale
