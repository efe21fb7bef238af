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

// One gradient per input of the op. An undefined gradient is not needed, or was written through
// BackwardArgs::leaf_grad.
using Grads = std::vector<Tensor>;
using BackwardFn = std::function<Grads(BackwardArgs&)>;

// Destination for the gradient of a leaf input that an op writes itself instead of returning it.
struct LeafGrad {
  Tensor grad;              // f32, or the reduction dtype of the FSDP unit
  bool accumulate = false;  // false: overwrite the whole gradient
};

// Arguments of a backward function.
class BackwardArgs {
 public:
  BackwardArgs(const Node& node, const std::vector<Tensor>& grads, const TensorImpl* seed,
               bool retains = false)
      : node_(node), grads_(grads), seed_(seed), retains_(retains) {}

  // Gradient of output i. Undefined if none reached it; at least one output has a gradient.
  const Tensor& dy(int i = 0) const { return grads_[static_cast<size_t>(i)]; }
  bool needs(int input) const;  // true if this input's gradient is needed
  // Destination for the gradient of a leaf, if its dtype is f32 or `also`; the op must then write
  // it. Null if the input is not a leaf, if its gradient has another dtype, and inside
  // backward_inputs(): the op must then return the gradient.
  std::optional<LeafGrad> leaf_grad(int input, DType also = DType::kF32) const;
  const Tensor& leaf(int input) const;  // undefined if the input is not a leaf
  // Destination for postponed leaf gradients inside backward_inputs() (autograd/deferred.h); else
  // null.
  DeferredGrads* deferred() const;
  // True if a later backward uses the graph again, so saved tensors must not be changed.
  bool retains() const { return retains_; }
  // True if dy() is the gradient with which backward(loss) started (backward_seed()).
  bool dy_is_seed() const;

 private:
  const Node& node_;
  const std::vector<Tensor>& grads_;
  const TensorImpl* seed_;  // null: the caller passed dy to backward()
  bool retains_;
};

// Records that `outputs` were computed from `inputs` (which may be undefined), if autograd is
// enabled and any input requires a gradient. `backward` is called once per backward(). Throws
// AutogradError if such an input belongs to another context than the outputs.
void record(const char* op, std::initializer_list<Tensor> inputs,
            std::initializer_list<Tensor*> outputs, BackwardFn backward);

// record() for a number of inputs known only at run time.
void record(const char* op, const std::vector<Tensor>& inputs, const std::vector<Tensor*>& outputs,
            BackwardFn backward);

// record() for a result y of x that is in another context. All recorded ops of y's context get
// higher numbers than those of x's.
void record_move(const char* op, const Tensor& x, Tensor& y, BackwardFn backward);

// First check of an in-place op. While gradients are recorded, throws AutogradError for a leaf that
// requires a gradient, and for a tensor that shares its memory with another recorded tensor. Throws
// ShapeError unless x is contiguous.
void check_in_place(const char* op, const Tensor& x);

// True if record() would record; ops then keep what backward needs.
bool needs_grad(Context& context, std::initializer_list<Tensor> inputs);

// Computes the gradients of all leaves that `root` depends on, and adds them to existing gradients.
// dy: the gradient of root, contiguous; by default root must be a scalar and dy is backward_seed().
// Not recursive, so a deep graph cannot overflow the stack. Consumes the graph, unless it is
// retained: a second backward through it throws AutogradError. Second derivatives are not
// supported: gradients are constants, and a loss computed from grad() has no gradient through it.
void backward(const Tensor& root, const Tensor& dy = {}, bool retain_graph = false);

// Initial gradient of a loss: StepState::grad_scale times the loss scale, with their present values
// on the device. grad_scale is 1 unless a trainer sets it (to 1 / the weight of the whole step,
// such as its tokens, so that gradients of micro-batches and ranks can be added); amp::GradScaler
// sets the loss scale. Every term of a loss gets both factors from here, independent of its ops.
Tensor backward_seed(Context& context, const Shape& shape = {}, DType dtype = DType::kF32);

// Scope in which every backward() of the context calls these hooks. It may outlive the context.
class BackwardHooksScope {
 public:
  BackwardHooksScope(Context& context, BackwardHooks hooks);
  ~BackwardHooksScope();
  BackwardHooksScope(const BackwardHooksScope&) = delete;
  BackwardHooksScope& operator=(const BackwardHooksScope&) = delete;

 private:
  std::shared_ptr<DeviceMemory> memory_;
  std::list<BackwardHooks>::iterator place_;
};

// Scope in which ops of the context record nothing for backward.
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

// Scope in which layers run in inference mode (no dropout) and ops record nothing for backward.
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
