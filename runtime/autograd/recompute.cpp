#include "shale/runtime/autograd/recompute.h"

#include <memory>
#include <utility>

#include "shale/base/error.h"
#include "shale/runtime/autograd/node.h"
#include "shale/runtime/autograd/saved_tensor.h"
#include "shale/runtime/tensor/autograd_state.h"
#include "shale/runtime/tensor/tensor_impl.h"

namespace shale {
namespace {

// Scope that sets the context's AutogradModes and restores the previous ones at its end.
class ModesScope {
 public:
  ModesScope(Context& context, const AutogradModes& modes)
      : modes_(context.autograd()), before_(modes_) {
    modes_ = modes;
  }
  ~ModesScope() { modes_ = before_; }
  ModesScope(const ModesScope&) = delete;
  ModesScope& operator=(const ModesScope&) = delete;

 private:
  AutogradModes& modes_;
  AutogradModes before_;
};

class Segment;

// A saved tensor of a segment. `tensor` is undefined until the segment has run again. The op that
// saved the tensor owns the Slot, and with it the tensor.
struct Slot {
  std::shared_ptr<Segment> segment;
  Shape shape;
  DType dtype = DType::kF32;
  Tensor tensor;
};

// Returns an input of the second run. For fn it looks like the input of the first run: a leaf is
// still a leaf, and a tensor that had a history has one again, although an empty one.
Tensor replayed_input(const SavedTensor& saved, bool requires_grad) {
  if (!saved.defined()) return {};
  Tensor x = saved.get();
  if (!requires_grad || x.impl().leaf != nullptr) return x;
  x = x.detach();
  x.impl().requires_grad = true;
  x.impl().grad_fn = std::make_shared<Node>();
  return x;
}

class Segment : public std::enable_shared_from_this<Segment> {
 public:
  Segment(Context& context, CheckpointFn fn, const std::vector<Tensor>& inputs)
      : context_(context),
        fn_(std::move(fn)),
        modes_(context.autograd()),
        step_(context.hold_step()) {
    for (const Tensor& input : inputs) {
      inputs_.emplace_back("checkpoint", input);
      requires_grad_.push_back(input.requires_grad());
    }
  }

  std::vector<Tensor> run_first(const std::vector<Tensor>& inputs) {
    const SavedTensorHooksScope hooks(
        context_, {.pack = [this](const Tensor& x) { return make_slot(x); },
                   .unpack =
                       [](const std::shared_ptr<void>& slot) {
                         return Segment::fill(*std::static_pointer_cast<Slot>(slot));
                       }});
    return fn_(inputs);
  }

 private:
  std::shared_ptr<void> make_slot(const Tensor& x) {
    auto slot = std::make_shared<Slot>(
        Slot{.segment = shared_from_this(), .shape = x.shape(), .dtype = x.dtype(), .tensor = {}});
    slots_.push_back(slot);
    return slot;
  }

  static Tensor fill(const Slot& slot) {
    if (!slot.tensor.defined()) slot.segment->run_again();
    if (!slot.tensor.defined()) {
      throw AutogradError(cat("checkpoint: the recomputation ended without a tensor ",
                              dtype_name(slot.dtype), slot.shape,
                              " that the first run saved: fn must compute the same again"));
    }
    return slot.tensor;
  }

  void run_again() {
    // number of tensors to recompute, up to the last one still needed
    size_t wanted = slots_.size();
    while (wanted > 0 && slots_[wanted - 1].expired()) --wanted;
    std::vector<Tensor> inputs;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      inputs.push_back(replayed_input(inputs_[i], requires_grad_[i]));
    }
    AutogradModes modes = modes_;
    modes.recomputing = true;
    const ModesScope modes_scope(context_, modes);
    const Context::StepScope step_scope(context_, step_);
    size_t saved = 0;
    const SavedTensorHooksScope hooks(context_, {.pack =
                                                     [&](const Tensor& x) {
                                                       take(saved++, x);
                                                       if (saved == wanted)
                                                         throw RecomputationDone();
                                                       return std::make_shared<int>();
                                                     },
                                                 // never called, because the recomputed graph has
                                                 // no backward
                                                 .unpack = nullptr});
    try {
      fn_(inputs);
    } catch (const RecomputationDone&) {  // NOLINT: take() ends fn_ this way
    }
  }

  void take(size_t index, const Tensor& x) {
    const std::shared_ptr<Slot> slot = slots_[index].lock();
    if (slot == nullptr) return;
    if (!(x.shape() == slot->shape) || x.dtype() != slot->dtype) {
      throw AutogradError(cat("checkpoint: tensor ", index + 1, " of ", slots_.size(),
                              " that the recomputation saves is ", x, ", the first run's was ",
                              dtype_name(slot->dtype), slot->shape,
                              ": fn must compute the same again"));
    }
    slot->tensor = x;
  }

  Context& context_;
  CheckpointFn fn_;
  std::vector<SavedTensor> inputs_;
  std::vector<bool> requires_grad_;
  AutogradModes modes_;
  std::shared_ptr<const Storage> step_;
  std::vector<std::weak_ptr<Slot>> slots_;  // saved tensors, in the order in which fn saves them
};

CheckpointFn of_one(const std::function<Tensor(const Tensor&)>& fn) {
  return [fn](const std::vector<Tensor>& inputs) {
    return std::vector<Tensor>{fn(inputs.front())};
  };
}

}  // namespace

std::vector<Tensor> checkpoint(const CheckpointFn& fn, const std::vector<Tensor>& inputs) {
  if (inputs.empty()) throw ShapeError("checkpoint: there are no inputs, expected at least one");
  check_defined("checkpoint", "the first input", inputs.front());
  Context& context = inputs.front().context();
  if (!context.autograd().enabled) return fn(inputs);  // without autograd, fn saves nothing
  return std::make_shared<Segment>(context, fn, inputs)->run_first(inputs);
}

Tensor checkpoint(const std::function<Tensor(const Tensor&)>& fn, const Tensor& x) {
  return checkpoint(of_one(fn), std::vector<Tensor>{x}).front();
}

SelectiveRecompute::SelectiveRecompute(Context& context)
    : context_(context), before_(context.autograd().selective) {
  context_.autograd().selective = true;
}

SelectiveRecompute::~SelectiveRecompute() {
  context_.autograd().selective = before_;
}

std::vector<Tensor> recompute(Recompute level, const CheckpointFn& fn,
                              const std::vector<Tensor>& inputs) {
  switch (level) {
    case Recompute::kNone: break;
    case Recompute::kFull: return checkpoint(fn, inputs);
    case Recompute::kSelective: {
      const SelectiveRecompute scope(inputs.front().context());
      return fn(inputs);
    }
  }
  return fn(inputs);
}

Tensor recompute(Recompute level, const std::function<Tensor(const Tensor&)>& fn, const Tensor& x) {
  return recompute(level, of_one(fn), std::vector<Tensor>{x}).front();
}

}  // namespace shale
