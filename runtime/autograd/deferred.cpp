#include "shale/runtime/autograd/deferred.h"

#include <utility>

#include "shale/kernels/elementwise.h"
#include "shale/runtime/tensor/tensor_impl.h"

namespace shale {
namespace {

// Returns a leaf's gradient tensor. Allocates it if it does not exist yet.
const Tensor& grad_storage(const Tensor& leaf) {
  LeafState& state = leaf_state(leaf);
  if (!state.grad.defined()) {
    state.grad = state.allocate_grad != nullptr
                     ? state.allocate_grad()
                     : empty(leaf.context(), leaf.shape(), DType::kF32, MemoryTag::kGradient);
    state.has_value = false;
  }
  return state.grad;
}

}  // namespace

std::optional<LeafGrad> claim_leaf_grad(const Tensor& leaf, DType also) {
  const DType dtype = grad_storage(leaf).dtype();
  if (dtype != DType::kF32 && dtype != also) return std::nullopt;
  LeafState& state = leaf_state(leaf);
  const LeafGrad result{.grad = state.grad, .accumulate = state.has_value};
  state.has_value = true;
  return result;
}

void add_leaf_grad(const Tensor& leaf, const Tensor& grad) {
  const Tensor& to = grad_storage(leaf);
  LeafState& state = leaf_state(leaf);
  kernels::axpby(to.exec(), {.a = grad, .b = state.has_value ? to.view() : View{}, .y = to});
  state.has_value = true;
}

void DeferredGrads::add(std::vector<Tensor> leaves, std::function<void()> work) {
  for (const Tensor& leaf : leaves) ++left_[&leaf.impl()];
  work_.push_back({std::move(leaves), std::move(work)});
}

void DeferredGrads::complete(const Tensor& leaf) {
  complete_.push_back(leaf);
}

void DeferredGrads::run() {
  const auto tell = [](const Tensor& leaf) {
    for (const auto& hook : leaf_state(leaf).ready_hooks) hook();
  };
  std::unordered_set<const TensorImpl*> complete;
  for (const Tensor& leaf : complete_) {
    complete.insert(&leaf.impl());
    if (!left_.contains(&leaf.impl())) tell(leaf);
  }
  for (Entry& entry : work_) {
    entry.run();
    entry.run = nullptr;  // frees the tensors that the work owns
    for (const Tensor& leaf : entry.leaves) {
      if (--left_[&leaf.impl()] == 0 && complete.contains(&leaf.impl())) tell(leaf);
    }
  }
  work_.clear();
  complete_.clear();
  left_.clear();
}

}  // namespace shale
