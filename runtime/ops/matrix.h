#pragma once

#include "shale/base/view.h"
#include "shale/runtime/autograd/deferred.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/tensor/tensor.h"

namespace shale {

// x with all dimensions but the last as rows: [rows, C]. x is contiguous.
View as_matrix(const Tensor& x);
View transposed(const View& matrix);

// How to compute under the per-step values of an op's forward, whatever the step is by now.
class StepHold {
 public:
  explicit StepHold(const Context& context) : storage_(context.hold_step()) {}
  Exec exec(const Tensor& x) const;

 private:
  std::shared_ptr<const Storage> storage_;
};

// dy() as a multiple of backward_seed(), which the kernels of cross-entropies have put into their
// gradient already; undefined: 1.
Tensor multiple_of_seed(const BackwardArgs& args);

// Shape of x with the last size replaced.
Shape with_last(const Shape& shape, int64_t last);

// An input whose gradient an op makes.
struct GradOf {
  int input;
  const Tensor& like;
  DType also = DType::kBF16;  // dtype of a destination that `write` takes besides f32
};

// Writes a gradient either straight into its leaf or into a new f32 tensor that is put into
// grads[input]: calls `write(destination, accumulate)`. A kernel adds in f32 to what a leaf holds,
// and rounds once.
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

// The gradient of a weight [N, K], input number `input`: dyᵀ x, if anybody needs it. dy: [..., N],
// x: [..., K]. It may be left for later (autograd/deferred.h).
void emit_weight_grad(BackwardArgs& args, int input, const Tensor& weight, Grads& grads,
                      const Tensor& dy, const Tensor& x);

}  // namespace shale
