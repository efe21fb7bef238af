#pragma once

#include <functional>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "shale/runtime/autograd/tape.h"

namespace shale {

// Where to write the gradient of a leaf now, which is f32 or `also`. Nothing if its gradient has
// another dtype. Calling it is a promise to write.
std::optional<LeafGrad> claim_leaf_grad(const Tensor& leaf, DType also = DType::kF32);
// Adds to a leaf's gradient, or sets it.
void add_leaf_grad(const Tensor& leaf, const Tensor& grad);

// The gradients of leaves that a backward has left for later: what a pipeline's rank does when it
// would wait otherwise (arXiv:2401.10241, section 2).
class DeferredGrads {
 public:
  // Work that adds to the gradients of these leaves; it keeps what it uses.
  void add(std::vector<Tensor> leaves, std::function<void()> work);
  // No other work of this backward comes for that leaf: its ready hooks are called when the work
  // that there is has been done.
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
  std::vector<Tensor> complete_;  // in that order
  std::unordered_map<const TensorImpl*, int> left_;  // entries, by leaf
};

// backward() in two halves. The first computes the gradients of what leads to leaves, and leaves
// those of the leaves themselves to the second, with the same bits. Nothing of a leaf, and none of
// the context's BackwardHooks, happens before the second, which is a backward to all who look on.
// Between the two live an input and an output's gradient of each product, and the gradients of
// other leaves. Throws AutogradError inside another backward.
void backward_inputs(const Tensor& root, const Tensor& dy, DeferredGrads& rest);
// Empties `rest`.
void backward_weights(Context& context, DeferredGrads& rest);

}  // namespace shale
