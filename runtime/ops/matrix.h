#pragma once

#include "shale/base/view.h"
#include "shale/runtime/autograd/deferred.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/tensor/tensor.h"

namespace shale {

// Returns a contiguous x as a view [rows, C]; all dimensions but the last become rows.
View as_matrix(const Tensor& x);
View transposed(const View& matrix);

// Makes kernels in backward use the per-step values of the op's forward, even if the step has
// advanced in between.
class StepHold {
 public:
  explicit StepHold(const Context& context) : storage_(context.hold_step()) {}
  Exec exec(const Tensor& x) const;

 private:
  std::shared_ptr<const Storage> storage_;
};

// Returns the factor by which the incoming gradient dy() differs from backward_seed().
// Cross-entropy kernels have already applied the seed. An undefined tensor means 1.
Tensor multiple_of_seed(const BackwardArgs& args);

// Returns the dimension `dim`, counted from the end if it is negative: dim, or dim + x.ndim().
// Throws ShapeError with the op if x has no such dimension.
int dim_index(const char* op, const Tensor& x, int dim);

// Returns the shape of x with another last size.
Shape with_last(const Shape& shape, int64_t last);

// An input whose gradient an op computes.
struct GradOf {
  int input;
  const Tensor& like;
  DType also = DType::kBF16;  // dtype besides f32 that `write` supports for its destination
};

// Computes the gradient of an input by calling `write(destination, accumulate)`. The destination is
// the leaf's gradient if possible; else a new f32 tensor, which becomes grads[input]. A kernel that
// accumulates into a leaf adds in f32 and rounds once.
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

// Computes the gradient dyᵀ x of a weight [N, K], which is input number `input`, if it is needed.
// dy: [..., N], x: [..., K]. It may be deferred (autograd/deferred.h).
void emit_weight_grad(BackwardArgs& args, int input, const Tensor& weight, Grads& grads,
                      const Tensor& dy, const Tensor& x);

}  // namespace shale
