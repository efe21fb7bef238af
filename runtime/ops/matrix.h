#pragma once

#include "shale/base/view.h"
#include "shale/runtime/autograd/deferred.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/tensor/tensor.h"

namespace shale {

// View of a contiguous x as [rows, C]; all dimensions but the last are rows.
View as_matrix(const Tensor& x);
View transposed(const View& matrix);

// Makes kernels use the per-step values of an op's forward, even after the step has advanced.
class StepHold {
 public:
  explicit StepHold(const Context& context) : storage_(context.hold_step()) {}
  Exec exec(const Tensor& x) const;

 private:
  std::shared_ptr<const Storage> storage_;
};

// Returns the incoming gradient dy() divided by backward_seed(), which cross-entropy kernels have
// already applied. An undefined tensor stands for 1.
Tensor multiple_of_seed(const BackwardArgs& args);

// Returns the number of a dimension that may be counted from the end: dim, or dim + x.ndim() if it
// is negative. Throws ShapeError with the op if x has no such dimension.
int dim_index(const char* op, const Tensor& x, int dim);

// Shape of x with the last size replaced.
Shape with_last(const Shape& shape, int64_t last);

// An input whose gradient an op computes.
struct GradOf {
  int input;
  const Tensor& like;
  DType also = DType::kBF16;  // dtype besides f32 that `write` supports as destination
};

// Calls `write(destination, accumulate)` with the leaf's gradient as destination, or with a new f32
// tensor that it stores in grads[input]. A kernel that accumulates into a leaf adds in f32 and
// rounds once.
template <typename Write>
void emit_grad(BackwardArgs& args, const GradOf& of, Grads& grads, Write write) {
  const auto [input, like, also] = of;
  if (!args.needs(input)) return;
  if (const auto leaf = args.leaf_grad(input, also)) {
    write(leaf->grad, leaf->accumulate);
  } else {
    Tensor grad = empty(like.context(), like.shape(), DType::kF32, MemoryTag::kGradient);
    write(grad, false);
    grads[static_cast<size_t>(input)] = grad;
  }
}

// Gradient of a weight [N, K], which is input number `input`: dyᵀ x, if it is needed. dy: [..., N],
// x: [..., K]. It may be deferred (autograd/deferred.h).
void emit_weight_grad(BackwardArgs& args, int input, const Tensor& weight, Grads& grads,
                      const Tensor& dy, const Tensor& x);

}  // namespace shale
