#pragma once

#include <functional>
#include <initializer_list>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "shale/runtime/autograd/saved_tensor.h"
#include "shale/runtime/tensor/autograd_state.h"
#include "shale/runtime/tensor/tensor.h"

namespace shale {

struct Node;
class BackwardArgs;

// One gradient per input of the op. Undefined: none is needed, or it was written through
// BackwardArgs::leaf_grad.
using Grads = std::vector<Tensor>;
using BackwardFn = std::function<Grads(BackwardArgs&)>;

// Where an op may write the gradient of a leaf input itself, instead of returning it.
struct LeafGrad {
  Tensor grad;              // f32, or the unit's reduction dtype
  bool accumulate = false;  // false: overwrite all of it
};

// What a backward function is called with.
class BackwardArgs {
 public:
  BackwardArgs(const Node& node, const std::vector<Tensor>& grads, const TensorImpl* seed)
      : node_(node), grads_(grads), seed_(seed) {}

  // Gradient of output i. Undefined when none reached it, though never for all outputs.
  const Tensor& dy(int i = 0) const { return grads_[static_cast<size_t>(i)]; }
  bool needs(int input) const;  // whether anybody wants the gradient of this input
  // Where to write the gradient of a leaf, which is f32 or `also`. Null when the input is no leaf
  // or its gradient has another dtype, and inside backward_inputs(): then return the gradient.
  // Calling it is a promise to write.
  std::optional<LeafGrad> leaf_grad(int input, DType also = DType::kF32) const;
  const Tensor& leaf(int input) const;  // undefined: the input is none
  // Inside backward_inputs() (autograd/deferred.h), where an op may leave its leaves' gradients;
  // else null.
  DeferredGrads* deferred() const;
  // Whether dy() is the gradient that backward(loss) began with (backward_seed()).
  bool dy_is_seed() const;

 private:
  const Node& node_;
  const std::vector<Tensor>& grads_;
  const TensorImpl* seed_;  // null: the caller of backward() gave it
};

// Records that `outputs` were computed from `inputs` (undefined ones allowed) when autograd is
// enabled and any input requires a gradient. `backward` is called at most once. Throws
// AutogradError for such an input in another context than the outputs.
void record(const char* op, std::initializer_list<Tensor> inputs,
            std::initializer_list<Tensor*> outputs, BackwardFn backward);

// The same for a number of inputs known at run time.
void record(const char* op, const std::vector<Tensor>& inputs, const std::vector<Tensor*>& outputs,
            BackwardFn backward);

// In-place ops begin with this. Throws AutogradError, while gradients are recorded, for a leaf that
// requires one and for a tensor whose memory another recorded tensor shares; ShapeError unless x is
// contiguous.
void check_in_place(const char* op, const Tensor& x);

// Whether record() would record: ops then keep what backward needs.
bool needs_grad(Context& context, std::initializer_list<Tensor> inputs);

// Computes the gradients of all leaves that `root` depends on, adding to what they hold. dy: the
// gradient of root, contiguous; by default root is a scalar and dy is backward_seed(). Iterative:
// depth costs no stack. The graph is consumed: a second backward through it throws AutogradError.
// There are no second derivatives: gradients are constants, and a loss that is made of grad() has
// no gradient through it.
void backward(const Tensor& root, const Tensor& dy = {});

// What a loss's gradient begins with: StepState::grad_scale times the loss scale, as they are on
// the device now. 1 unless a trainer has set the former (to 1 / what the whole step counts, so that
// gradients of micro-batches and ranks add up) or amp::GradScaler the latter. All of a loss's terms
// get both from here, whatever ops they are made of.
Tensor backward_seed(Context& context, const Shape& shape = {}, DType dtype = DType::kF32);

// While it lives, every backward() of the context calls these hooks.
class BackwardHooksScope {
 public:
  BackwardHooksScope(Context& context, BackwardHooks hooks);
  ~BackwardHooksScope();
  BackwardHooksScope(const BackwardHooksScope&) = delete;
  BackwardHooksScope& operator=(const BackwardHooksScope&) = delete;

 private:
  std::list<BackwardHooks>& hooks_;
  std::list<BackwardHooks>::iterator place_;
};

// While it lives, ops of the context record nothing.
class NoGrad {
 public:
  explicit NoGrad(Context& context);
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  Context& context_;
  bool before_;
};

// While it lives, layers behave as in inference (no dropout) and ops record nothing.
class Inference {
 public:
  explicit Inference(Context& context);
  ~Inference();

 private:
  NoGrad no_grad_;
  Context& context_;
  bool before_;
};

}  // namespace shale
