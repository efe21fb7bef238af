#pragma once

#include <functional>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "shale/runtime/autograd/tape.h"

namespace shale {

// Returns the tensor to which the caller must write the leaf's gradient. Returns nullopt if that
// tensor's dtype is neither f32 nor `also`.
std::optional<LeafGrad> claim_leaf_grad(const Tensor& leaf, DType also = DType::kF32);
// Adds to a leaf's gradient, or sets it if there is none.
void add_leaf_grad(const Tensor& leaf, const Tensor& grad);

// Weight gradients postponed by backward. A pipeline rank computes them when it would otherwise
// idle (zero-bubble schedules, arXiv:2401.10241, section 2).
class DeferredGrads {
 public:
  // Adds work that computes and accumulates the gradients of `leaves`. The work must own the
  // tensors that it uses.
  void add(std::vector<Tensor> leaves, std::function<void()> work);
  // States that this backward adds no further work for the leaf. The leaf's ready hooks are called
  // when the work added so far has run.
  void complete(const Tensor& leaf);
  bool empty() const { return work_.empty() && complete_.empty(); }

 private:
  friend void backward_weights(Context& context, DeferredGrads& rest);
  struct Entry {
    std::vector<Tensor> leaves;
    std::function<void()> run;
  };
  void run();

  std::vector<Entry> work_;
  std::vector<Tensor> complete_;  // leaves in the order in which complete() was called
  // number of entries of work_ left for each leaf
  std::unordered_map<const TensorImpl*, int> left_;
};

// Runs the first half of backward(); backward_weights() runs the second half. Together their
// results are bitwise those of backward(). The first half computes the gradients of activations and
// postpones the gradients of leaves, which the second half computes. Leaf hooks and the context's
// BackwardHooks run only in the second half. Between the halves, two tensors of each matmul stay in
// memory, its input and the gradient of its output, and so do the gradients of other leaves. Throws
// AutogradError inside another backward.
void backward_inputs(const Tensor& root, const Tensor& dy, DeferredGrads& rest);
// Runs the second half of backward(): the postponed work. Empties `rest`.
void backward_weights(Context& context, DeferredGrads& rest);

}  // namespace shale
