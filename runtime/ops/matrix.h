#pragma once

#include "runtime/autograd/tape.h"
#include "runtime/base/view.h"
#include "runtime/tensor/tensor.h"

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

// Shape of x with the last size replaced.
Shape with_last(const Shape& shape, int64_t last);

// Writes the gradient of an input either straight into its leaf or into a new tensor that is put
// into grads[input]: calls `write(destination, accumulate)`.
template <typename Write>
void emit_grad(BackwardArgs& args, int input, const Tensor& like, Grads& grads, Write write) {
  if (!args.needs(input)) return;
  if (const auto leaf = args.leaf_grad(input)) {
    write(leaf->grad, leaf->accumulate);
  } else {
    Tensor grad = empty(like.context(), like.shape(), DType::kF32, MemoryTag::kGradient);
    write(grad, false);
    grads[static_cast<size_t>(input)] = grad;
  }
}

}  // namespace shale
