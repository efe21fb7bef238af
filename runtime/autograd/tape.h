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

// Gradients, one per input of the op. A gradient is undefined if it is not needed, or if the op
// wrote it through BackwardArgs::leaf_grad.
using Grads = std::vector<Tensor>;
using BackwardFn = std::function<Grads(BackwardArgs&)>;

// Gradient tensor of a leaf input. The op writes the gradient into it instead of returning it.
struct LeafGrad {
  Tensor grad;              // f32, or the reduction dtype of the FSDP unit
  bool accumulate = false;  // true: add to the gradient; false: overwrite all of it
};

// Arguments of a backward function.
class BackwardArgs {
 public:
  BackwardArgs(const Node& node, const std::vector<Tensor>& grads, const TensorImpl* seed,
               bool retains = false)
      : node_(node), grads_(grads), seed_(seed), retains_(retains) {}

  // Gradient of output i; undefined if no gradient reached this output. At least one output has a
  // gradient.
  const Tensor& dy(int i = 0) const { return grads_[static_cast<size_t>(i)]; }
  bool needs(int input) const;  // true if this input's gradient is needed
  // Returns the gradient tensor of a leaf if its dtype is f32 or `also`; the op must then write it.
  // Returns nullopt if the input is not a leaf, if the gradient has another dtype, and inside
  // backward_inputs(); the op must then return the gradient.
  std::optional<LeafGrad> leaf_grad(int input, DType also = DType::kF32) const;
  const Tensor& leaf(int input) const;  // the input; undefined if it is not a leaf
  // Inside backward_inputs(), returns the object that takes postponed leaf gradients
  // (autograd/deferred.h). Elsewhere returns null.
  DeferredGrads* deferred() const;
  // True if a later backward uses the graph again, so saved tensors must not be changed.
  bool retains() const { return retains_; }
  // True if dy() is the initial gradient backward_seed(), that is, if backward(loss) started at
  // this op.
  bool dy_is_seed() const;

 private:
  const Node& node_;
  const std::vector<Tensor>& grads_;
  const TensorImpl* seed_;  // null: the caller passed dy to backward()
  bool retains_;
};

// Records that an op computed `outputs` from `inputs`; inputs may be undefined. Does nothing if
// autograd is disabled or no input requires a gradient. Each backward() calls `backward` once.
// Throws AutogradError if an input that requires a gradient belongs to another context than the
// outputs.
void record(const char* op, std::initializer_list<Tensor> inputs,
            std::initializer_list<Tensor*> outputs, BackwardFn backward);

// record() for a number of inputs known only at run time.
void record(const char* op, const std::vector<Tensor>& inputs, const std::vector<Tensor*>& outputs,
            BackwardFn backward);

// record() for an op that moves x to y in another context. Ops recorded later in y's context get
// higher numbers than all ops recorded so far in x's context.
void record_move(const char* op, const Tensor& x, Tensor& y, BackwardFn backward);

// First check of an in-place op. While gradients are recorded, throws AutogradError for a leaf that
// requires a gradient, and for a tensor that shares its memory with another recorded tensor. Throws
// ShapeError unless x is contiguous.
void check_in_place(const char* op, const Tensor& x);

// True if record() would record an op with these inputs. The op must then keep what its backward
// needs.
bool needs_grad(Context& context, std::initializer_list<Tensor> inputs);

// Computes the gradients of all leaves that `root` depends on, and adds them to existing gradients.
// dy: the gradient of root, contiguous; by default root must be a scalar and dy is backward_seed().
// Not recursive, so a deep graph cannot overflow the stack. Consumes the graph, unless it is
// retained: a second backward through it throws AutogradError. Second derivatives are not
// supported: gradients are constants, and a loss computed from grad() has no gradient through it.
void backward(const Tensor& root, const Tensor& dy = {}, bool retain_graph = false);

// Initial gradient of a loss: StepState::grad_scale times the loss scale, with their present values
// on the device. It is the only place where a loss gets these factors; ops do not apply them. A
// trainer sets grad_scale to 1 / the weight of the whole step, such as its number of tokens, so
// that the gradients of micro-batches and ranks can be added; otherwise it is 1. amp::GradScaler
// sets the loss scale.
Tensor backward_seed(Context& context, const Shape& shape = {}, DType dtype = DType::kF32);

// Scope in which every backward() of the context calls `hooks`. The scope may outlive the context.
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
