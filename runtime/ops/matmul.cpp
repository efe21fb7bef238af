#include "shale/runtime/ops/matmul.h"

#include <span>

#include "shale/kernels/elementwise.h"
#include "shale/kernels/gemm.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/ops/cast_inputs.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/matrix.h"
#include "shale/runtime/ops/pointwise_internal.h"
#include "shale/runtime/ops/shape.h"
#include "shale/runtime/tensor/op_recorder.h"

namespace shale {
namespace {

Shape without_matrix(const Shape& shape) {
  return Shape(std::span<const int64_t>(shape.begin(), size_t(shape.ndim() - 2)));
}

Shape without_dim(const Shape& shape, int dim) {
  Shape result;
  for (int d = 0; d < shape.ndim(); ++d) {
    if (d != shape.ndim() + dim) result.push_back(shape[d]);
  }
  return result;
}

Shape with_matrix(Shape batch, int64_t rows, int64_t cols) {
  batch.push_back(rows);
  batch.push_back(cols);
  return batch;
}

// A tensor as a batch of matrices. Its leading dimensions are broadcast to a batch shape.
class Batched {
 public:
  Batched(const Tensor& x, const Shape& batch) : count_(batch.numel()), batch_(batch) {
    view_ = broadcast_view(x, with_matrix(batch, x.size(-2), x.size(-1)));
  }
  int64_t count() const { return count_; }
  View at(int64_t number) const {
    const int n = view_.ndim();
    int64_t offset = 0;
    for (int d = batch_.ndim(); d-- > 0;) {
      offset += number % batch_[d] * view_.strides[d];
      number /= batch_[d];
    }
    return {.data = static_cast<std::byte*>(view_.data) + offset * dtype_size(view_.dtype),
            .dtype = view_.dtype,
            .shape = {view_.shape[n - 2], view_.shape[n - 1]},
            .strides = {view_.strides[n - 2], view_.strides[n - 1]}};
  }
  // False if an earlier matrix of the batch is at the same address, because of broadcasting.
  bool is_first(int64_t number) const {
    for (int d = batch_.ndim(); d-- > 0;) {
      if (view_.strides[d] == 0 && number % batch_[d] != 0) return false;
      number /= batch_[d];
    }
    return true;
  }

 private:
  int64_t count_;
  Shape batch_;
  View view_;
};

// Returns x if its matrices are row-major or column-major, else a contiguous copy.
Tensor with_dense_matrices(const Tensor& x) {
  const Shape& strides = x.strides();
  const int n = x.ndim();
  const bool row_major = strides[n - 1] == 1 && strides[n - 2] >= x.size(n - 1);
  const bool col_major = strides[n - 2] == 1 && strides[n - 1] >= x.size(n - 2);
  return row_major || col_major ? x : contiguous(x);
}

void check_matmul(const Tensor& a, const Tensor& b) {
  check_defined("matmul", "a", a);
  check_defined("matmul", "b", b);
  if (a.ndim() < 2 || b.ndim() < 2 || a.size(-1) != b.size(-2)) {
    throw ShapeError(cat("matmul: ", argument_text("b", b), " is ", b.shape(), ", ",
                         argument_text("a", a), " is ", a.shape(),
                         ", expected a [...,M,K] and b [...,K,N]"));
  }
  check_dtype("matmul", "b", b, a.dtype());
  check_same_device("matmul", a, {&b, 1});
}

// Computes the gradient of an operand. Calls product(number, to, accumulate) for each matrix of the
// batch. If the operand was broadcast, its gradient is summed in f32 and converted at the end.
template <class Product>
Tensor operand_grad(const Tensor& like, const Shape& batch, const Product& product) {
  const bool repeated = without_matrix(like.shape()).numel() != batch.numel();
  Tensor grad = empty(like.context(), like.shape(), repeated ? DType::kF32 : like.dtype());
  const Batched to(grad, batch);
  if (to.count() == 0) kernels::fill(grad.exec(), {.y = grad, .value = 0});
  for (int64_t i = 0; i < to.count(); ++i) product(i, to.at(i), !to.is_first(i));
  return cast(grad, like.dtype());
}

Grads gradients(BackwardArgs& args, const Tensor& a, const Tensor& b, const Shape& batch) {
  const Tensor dy = args.dy();
  const Batched dys(dy, batch), as(a, batch), bs(b, batch);
  Grads grads(2);
  if (args.needs(0)) {
    grads[0] = operand_grad(a, batch, [&](int64_t i, const View& to, bool accumulate) {
      kernels::gemm(dy.exec(),
                    {.a = dys.at(i), .b = transposed(bs.at(i)), .c = to, .accumulate = accumulate});
    });
  }
  if (args.needs(1)) {
    grads[1] = operand_grad(b, batch, [&](int64_t i, const View& to, bool accumulate) {
      kernels::gemm(dy.exec(),
                    {.a = transposed(as.at(i)), .b = dys.at(i), .c = to, .accumulate = accumulate});
    });
  }
  return grads;
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b) {
  if (amp::wants_low({a, b})) return matmul(amp::to_low(a), amp::to_low(b));
  if (a.defined() && a.ndim() == 1 && b.defined()) {
    const Tensor y = matmul(reshape(a, {1, a.size(0)}), b);
    return reshape(y, without_dim(y.shape(), b.ndim() == 1 ? -1 : -2));
  }
  if (a.defined() && b.defined() && b.ndim() == 1) {
    const Tensor y = matmul(a, reshape(b, {b.size(0), 1}));
    return reshape(y, without_dim(y.shape(), -1));
  }
  check_matmul(a, b);
  if (a.ndim() > 2 && b.ndim() == 2 && a.contiguous() && a.numel() > 0) {
    const Tensor y = matmul(reshape(a, {-1, a.size(-1)}), b);
    return reshape(y, with_last(a.shape(), b.size(1)));
  }
  const Shape batch =
      broadcast_shape("matmul", without_matrix(a.shape()), without_matrix(b.shape()));
  const Tensor left = with_dense_matrices(a), right = with_dense_matrices(b);
  Tensor y = empty(a.context(), with_matrix(batch, a.size(-2), b.size(-1)), a.dtype());
  const Batched as(left, batch), bs(right, batch), ys(y, batch);
  for (int64_t i = 0; i < ys.count(); ++i) {
    kernels::gemm(y.exec(), {.a = as.at(i), .b = bs.at(i), .c = ys.at(i)});
  }
  if (OpRecorder* to = recorder_of(y)) to->add("matmul", {left, right}, {y});
  if (!needs_grad(y.context(), {left, right})) return y;
  record("matmul", {left, right}, {&y},
         [a = SavedTensor("matmul", left), b = SavedTensor("matmul", right),
          batch](BackwardArgs& args) { return gradients(args, a.get(), b.get(), batch); });
  return y;
}

}  // namespace shale
