#include "shale/runtime/autograd/tape.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "shale/base/error.h"
#include "shale/kernels/elementwise.h"
#include "shale/runtime/autograd/deferred.h"
#include "shale/runtime/autograd/node.h"
#include "shale/runtime/tensor/autograd_state.h"
#include "shale/runtime/tensor/op_recorder.h"
#include "shale/runtime/tensor/tensor_impl.h"

namespace shale {

// Destroys the graph with a list instead of recursive destructors: a chain of 100,000 ops would
// overflow the stack.
Node::~Node() {
  std::vector<std::shared_ptr<Node>> orphans;
  const auto collect = [&orphans](Node& node) {
    for (Edge& edge : node.inputs) {
      if (edge.node != nullptr) orphans.push_back(std::move(edge.node));
    }
  };
  collect(*this);
  while (!orphans.empty()) {
    const std::shared_ptr<Node> node = std::move(orphans.back());
    orphans.pop_back();
    if (node.use_count() == 1) collect(*node);
  }
}

bool BackwardArgs::needs(int input) const {
  const Edge& edge = node_.inputs[static_cast<size_t>(input)];
  return edge.node != nullptr || edge.leaf.defined();
}

const Tensor& BackwardArgs::leaf(int input) const {
  return node_.inputs[static_cast<size_t>(input)].leaf;
}

DeferredGrads* BackwardArgs::deferred() const {
  for (const Tensor& dy : grads_) {
    if (dy.defined()) return dy.context().autograd().deferred;
  }
  return nullptr;
}

std::optional<LeafGrad> BackwardArgs::leaf_grad(int input, DType also) const {
  if (!leaf(input).defined() || deferred() != nullptr) return std::nullopt;
  return claim_leaf_grad(leaf(input), also);
}

namespace {

// One backward pass. It visits nodes in descending order of number, so all consumers of a tensor
// have added its gradient before the tensor's own node runs. The order, and with it every sum, is
// the same in every run and on every rank.
class Engine {
 public:
  // deferred: object that takes over the gradients of leaves and computes them later; null: leaves
  // get their gradients during the backward. retains: keeps the graph for another backward.
  explicit Engine(DeferredGrads* deferred = nullptr, bool retains = false)
      : deferred_(deferred), retains_(retains) {}
  void run(const Tensor& root, const Tensor& dy);

 private:
  Tensor make_seed(const Tensor& root, const Tensor& dy);
  void find_nodes(const std::shared_ptr<Node>& root);
  void visit(Node& node, std::vector<Tensor>& grads);
  void deliver(const Edge& edge, Tensor grad);
  void leaf_arrived(const Tensor& leaf);
  void sum_into(Tensor& slot, Tensor grad);

  DeferredGrads* const deferred_;
  const bool retains_;
  std::vector<std::shared_ptr<Node>> nodes_;  // nodes in descending order of number
  std::unordered_map<const Node*, std::vector<Tensor>> grads_;
  // number of gradients that each leaf still gets
  std::unordered_map<const TensorImpl*, int> leaf_uses_;
  // initial gradient; null if the caller passed it to backward()
  const TensorImpl* seed_ = nullptr;
};

Tensor Engine::make_seed(const Tensor& root, const Tensor& dy) {
  if (dy.defined()) {
    check_shape("backward", "dy", dy, root.shape());
    check_contiguous("backward", "dy", dy);  // backward functions require dense rows
    return dy;
  }
  if (root.numel() != 1) {
    throw AutogradError(cat("backward: root is ", root, ", expected a scalar or an explicit dy"));
  }
  Tensor seed = backward_seed(root.context(), root.shape(), root.dtype());
  seed_ = &seed.impl();
  return seed;
}

void Engine::find_nodes(const std::shared_ptr<Node>& root) {
  std::unordered_set<const Node*> seen = {root.get()};
  nodes_ = {root};
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i]->done) {
      throw AutogradError(cat("backward: the graph was used by an earlier backward (op ",
                              nodes_[i]->op, "): run forward again"));
    }
    for (const Edge& edge : nodes_[i]->inputs) {
      if (edge.leaf.defined()) ++leaf_uses_[&edge.leaf.impl()];
      if (edge.node != nullptr && seen.insert(edge.node.get()).second) nodes_.push_back(edge.node);
    }
  }
  std::sort(nodes_.begin(), nodes_.end(),
            [](const auto& a, const auto& b) { return a->number > b->number; });
}

void Engine::run(const Tensor& root, const Tensor& dy) {
  // also updates root.impl().grad_fn if root is a view
  const bool requires_grad = root.requires_grad();
  const std::shared_ptr<Node> node = root.impl().grad_fn;
  const Tensor seed = make_seed(root, dy);
  if (node == nullptr) {
    if (!requires_grad) {
      throw AutogradError("backward: root does not depend on any tensor that requires a gradient");
    }
    leaf_uses_[&root.impl()] = 1;
    deliver({.node = nullptr, .leaf = root}, seed);
    return;
  }
  find_nodes(node);
  const NoGrad no_grad(root.context());
  grads_[node.get()].resize(static_cast<size_t>(node->outputs));
  grads_[node.get()][static_cast<size_t>(root.impl().output)] = seed;
  for (std::shared_ptr<Node>& next : nodes_) {
    auto found = grads_.find(next.get());
    std::vector<Tensor> grads;
    if (found != grads_.end()) {
      grads = std::move(found->second);
      grads_.erase(found);
    }
    visit(*next, grads);
    next.reset();
  }
}

void Engine::visit(Node& node, std::vector<Tensor>& grads) {
  node.done = !retains_;
  const BackwardFn backward = retains_ ? node.backward : std::exchange(node.backward, nullptr);
  Grads input_grads(node.inputs.size());
  const auto reached =
      std::find_if(grads.begin(), grads.end(), [](const Tensor& g) { return g.defined(); });
  if (reached != grads.end()) {
    // Disables recording in a node of another context (see record_move()).
    std::optional<NoGrad> no_grad;
    if (reached->context().autograd().enabled) no_grad.emplace(reached->context());
    BackwardArgs args(node, grads, seed_, retains_);
    input_grads = backward(args);
    if (input_grads.size() != node.inputs.size()) {
      throw AutogradError(cat(node.op, ": backward returned ", input_grads.size(),
                              " gradients, expected ", node.inputs.size()));
    }
  }
  grads.clear();  // frees dy so that its memory can be reused
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    deliver(node.inputs[i], std::move(input_grads[i]));
  }
  // Clears edges now, so that a tensor that still holds this node keeps no other node alive.
  if (!retains_) node.inputs.clear();
}

void Engine::deliver(const Edge& edge, Tensor grad) {
  if (edge.leaf.defined()) {
    if (grad.defined()) {
      check_shape("backward", "the gradient of a leaf", grad, edge.leaf.shape());
      const auto add = [leaf = edge.leaf, grad] { add_leaf_grad(leaf, grad); };
      deferred_ != nullptr ? deferred_->add({edge.leaf}, add) : add();
    }
    leaf_arrived(edge.leaf);
  } else if (edge.node != nullptr && grad.defined()) {
    std::vector<Tensor>& slots = grads_[edge.node.get()];
    slots.resize(static_cast<size_t>(edge.node->outputs));
    sum_into(slots[static_cast<size_t>(edge.output)], std::move(grad));
  }
}

void Engine::leaf_arrived(const Tensor& leaf) {
  if (--leaf_uses_[&leaf.impl()] > 0) return;
  if (deferred_ != nullptr) return deferred_->complete(leaf);
  for (const auto& hook : leaf_state(leaf).ready_hooks) hook();
}

// A gradient may be shared (an addition passes the same tensor to both inputs), so it is
// accumulated in place only if nothing else holds it.
void Engine::sum_into(Tensor& slot, Tensor grad) {
  if (!slot.defined()) {
    slot = std::move(grad);
    return;
  }
  const bool owned = slot.impl_ptr().use_count() == 1 && slot.storage().use_count() == 1;
  Tensor sum = owned ? slot : empty_like(slot);
  kernels::axpby(sum.exec(), {.a = slot, .b = grad, .y = sum});
  slot = std::move(sum);
}

}  // namespace

bool BackwardArgs::dy_is_seed() const {
  return grads_.front().defined() && &grads_.front().impl() == seed_;
}

Tensor backward_seed(Context& context, const Shape& shape, DType dtype) {
  Tensor seed = empty(context, shape, dtype);
  StepState* const step = context.exec().step;
  kernels::mul(context.exec(), {.a = make_view(&step->grad_scale, shape),
                                .b = make_view(&step->loss_scale.value, {}),
                                .y = seed});
  return seed;
}

void check_in_place(const char* op, const Tensor& x) {
  check_contiguous(op, "x", x);
  if (!x.context().autograd().enabled) return;
  if (x.requires_grad() && x.impl().grad_fn == nullptr) {
    throw AutogradError(cat(op, ": ", argument_text("the tensor", x),
                            " is a leaf that requires a gradient, expected the result "
                            "of an op"));
  }
  if (*x.impl().sharing != Sharing::kNone) {
    throw AutogradError(cat(op,
                            ": the tensor is a view, or has views, and changing it would also "
                            "change tensors whose history does not record the change; use a "
                            "tensor without views"));
  }
}

bool needs_grad(Context& context, std::initializer_list<Tensor> inputs) {
  const AutogradState& state = context.autograd();
  // During an export every op must reach record(), which reports it to the recorder.
  if (state.recorder != nullptr) return true;
  return state.enabled && std::any_of(inputs.begin(), inputs.end(),
                                      [](const Tensor& input) { return input.requires_grad(); });
}

void record(const char* op, std::initializer_list<Tensor> inputs,
            std::initializer_list<Tensor*> outputs, BackwardFn backward) {
  record(op, std::vector<Tensor>(inputs), std::vector<Tensor*>(outputs), std::move(backward));
}

namespace {

// Backward visits nodes by number, and each context numbers its own nodes.
void check_one_context(const char* op, const std::vector<Tensor>& inputs, const Tensor& output) {
  for (const Tensor& input : inputs) {
    if (!input.requires_grad() || &input.context() == &output.context()) continue;
    throw AutogradError(cat(op, ": an input that requires a gradient, ", input,
                            ", belongs to another context than the result, expected a graph of one "
                            "context; detach() tensors of other contexts"));
  }
}

// Adds a node to the graph; record() has checked the arguments.
void link(const char* op, const std::vector<Tensor>& inputs, const std::vector<Tensor*>& outputs,
          BackwardFn backward) {
  AutogradState& state = outputs.front()->context().autograd();
  auto node = std::make_shared<Node>();
  node->op = op;
  node->number = state.next_node++;
  node->outputs = static_cast<int>(outputs.size());
  node->backward = std::move(backward);
  for (const Tensor& input : inputs) {
    Edge edge;
    if (input.requires_grad()) {
      edge.node = input.impl().grad_fn;
      edge.output = input.impl().output;
      if (edge.node == nullptr) edge.leaf = input;
    }
    node->inputs.push_back(std::move(edge));
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    TensorImpl& impl = outputs[i]->impl();
    impl.requires_grad = true;
    impl.grad_fn = node;
    impl.output = static_cast<int>(i);
  }
}

}  // namespace

void record(const char* op, const std::vector<Tensor>& inputs, const std::vector<Tensor*>& outputs,
            BackwardFn backward) {
  check_same_device(op, *outputs.front(), inputs);
  const bool wanted = std::any_of(inputs.begin(), inputs.end(),
                                  [](const Tensor& input) { return input.requires_grad(); });
  const AutogradState& state = outputs.front()->context().autograd();
  if (state.recorder != nullptr) {
    std::vector<Tensor> results;
    for (const Tensor* y : outputs) results.push_back(*y);
    state.recorder->check(op, inputs, results);
  }
  if (!state.enabled || !wanted) return;
  check_one_context(op, inputs, *outputs.front());
  link(op, inputs, outputs, std::move(backward));
}

namespace {

// Sets a value and restores the previous value on destruction.
template <typename T>
class Set {
 public:
  Set(T& place, T value) : place_(place), before_(std::exchange(place, value)) {}
  ~Set() { place_ = before_; }
  Set(const Set&) = delete;
  Set& operator=(const Set&) = delete;

 private:
  T& place_;
  T before_;
};

// Advances StepState::sample past the samples of this forward, so that the next forward has other
// dropout masks.
void count_samples(Context& context) {
  AutogradState& state = context.autograd();
  const auto seen = static_cast<uint64_t>(std::exchange(state.seen_samples, 0));
  if (seen == 0 || state.numbers_samples) return;
  context.update_step([seen](StepState& step) { step.sample += seen; });
}

// Runs body as a backward of the context, and calls the hooks around the outermost backward.
template <typename Body>
void run_backward(Context& context, const Body& body) {
  AutogradState& state = context.autograd();
  const bool outermost = state.backward_depth == 0;
  const Set depth(state.backward_depth, state.backward_depth + 1);
  if (outermost) {
    for (const BackwardHooks& hooks : state.backward_hooks) hooks.begin();
  }
  body();
  if (outermost) {
    for (const BackwardHooks& hooks : state.backward_hooks) hooks.end();
    count_samples(context);
  }
}

}  // namespace

// The backward of y also advances the sample number of y's context, because the forward in that
// context is over.
void record_move(const char* op, const Tensor& x, Tensor& y, BackwardFn backward) {
  AutogradState &from = x.context().autograd(), &to = y.context().autograd();
  if (!from.enabled || !to.enabled || !x.requires_grad()) return;
  to.next_node = std::max(to.next_node, from.next_node);
  link(op, {x}, {&y}, [backward = std::move(backward)](BackwardArgs& args) {
    count_samples(args.dy().context());
    return backward(args);
  });
}

void backward(const Tensor& root, const Tensor& dy, bool retain_graph) {
  check_defined("backward", "root", root);
  run_backward(root.context(), [&] { Engine(nullptr, retain_graph).run(root, dy); });
}

void backward_inputs(const Tensor& root, const Tensor& dy, DeferredGrads& rest) {
  check_defined("backward_inputs", "root", root);
  AutogradState& state = root.context().autograd();
  if (state.backward_depth > 0) {
    throw AutogradError("backward_inputs: called inside another backward, expected outside of it");
  }
  const Set depth(state.backward_depth, 1);
  const Set deferred(state.deferred, &rest);
  Engine(&rest).run(root, dy);
}

void backward_weights(Context& context, DeferredGrads& rest) {
  const NoGrad no_grad(context);
  run_backward(context, [&] { rest.run(); });
}

BackwardHooksScope::BackwardHooksScope(Context& context, BackwardHooks hooks)
    : memory_(context.memory()) {
  std::list<BackwardHooks>& all = context.autograd().backward_hooks;
  place_ = all.insert(all.end(), std::move(hooks));
}

BackwardHooksScope::~BackwardHooksScope() {
  // If the context no longer exists, the hooks were destroyed with it.
  if (memory_->context != nullptr) memory_->context->autograd().backward_hooks.erase(place_);
}

NoGrad::NoGrad(Context& context) : context_(context), before_(context.autograd().enabled) {
  context_.autograd().enabled = false;
}

NoGrad::~NoGrad() {
  context_.autograd().enabled = before_;
}

Inference::Inference(Context& context)
    : no_grad_(context), context_(context), before_(context.autograd().training) {
  context_.autograd().training = false;
}

Inference::~Inference() {
  context_.autograd().training = before_;
}

}  // namespace shale
