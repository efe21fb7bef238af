#pragma once

#include <functional>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "shale/runtime/autograd/tape.h"

namespace shale {

// Destination for the gradient of a leaf, if its dtype is f32 or `also`; else nullopt. The caller
// must write the gradient there.
std::optional<LeafGrad> claim_leaf_grad(const Tensor& leaf, DType also = DType::kF32);
// Adds to a leaf's gradient, or sets it if there is none.
void add_leaf_grad(const Tensor& leaf, const Tensor& grad);

// Weight gradients postponed by backward. A pipeline rank computes them when it would otherwise
// idle (zero-bubble schedules, arXiv:2401.10241, section 2).
class DeferredGrads {
 public:
  // Adds work that accumulates the gradients of these leaves. The work must own its tensors.
  void add(std::vector<Tensor> leaves, std::function<void()> work);
  // Marks a leaf that gets no further work from this backward. Its ready hooks are called after the
  // work added so far.
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
  std::vector<Tensor> complete_;                     // in the order in which complete() was called
  std::unordered_map<const TensorImpl*, int> left_;  // number of entries left for each leaf
};

// backward() in two halves with bitwise equal results. The first half computes the gradients that
// lead to leaves and postpones the gradients of the leaves themselves. The second half computes
// these postponed gradients. Leaf hooks and the context's BackwardHooks run only in the second
// half. Between the halves, the input and the output gradient of each matmul, and the gradients of
// other leaves, stay in memory. Throws AutogradError inside another backward.
void backward_inputs(const Tensor& root, const Tensor& dy, DeferredGrads& rest);
// Second half: runs the postponed work and empties `rest`.
void backward_weights(Context& context, DeferredGrads& rest);

}  // namespace shale
