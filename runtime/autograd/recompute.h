#pragma once

#include <functional>
#include <vector>

#include "shale/runtime/tensor/tensor.h"

namespace shale {

// Activation recomputation (checkpointing): computes activations again in backward instead of
// keeping them.

// Runs a segment of a model without keeping the tensors that its ops save (arXiv:1604.06174). When
// backward first needs one of them, the segment runs again from its inputs and restores all saved
// tensors that are still needed; gradients are bit for bit those of an ordinary forward. The inputs
// are kept; they pass through the saved-tensor hooks around the call, so they can be offloaded.
// Outputs are kept only if something else holds them.
//
// The first run records the graph as usual: outputs, hooks and leaves behave as without
// recomputation. Segments can be nested. The second run uses the same step values (so dropout masks
// are equal), training mode and autocast state, calls module hooks as the first did (see
// nn/module.h for the consequences), and stops as soon as nothing more is needed.
//
// fn must be repeatable: it may use only its inputs, and tensors and values that do not change
// until backward. Backward throws AutogradError if an input was changed in place, or if the second
// run saves a different number of tensors, or other shapes or dtypes, than the first.
using CheckpointFn = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;
std::vector<Tensor> checkpoint(const CheckpointFn& fn, const std::vector<Tensor>& inputs);
Tensor checkpoint(const std::function<Tensor(const Tensor&)>& fn, const Tensor& x);

// Thrown by a saved-tensor hook to leave a segment that has restored all needed tensors. It passes
// through ops and modules; only autograd/recompute.cpp catches it.
struct RecomputationDone {};

// Scope in which saved tensors that are cheap to recompute from other saved tensors (outputs of
// norms and of GELU) are not kept; backward recomputes them (set_recipe() in saved_tensor.h).
// Outputs of GEMMs and of attention are kept, so backward does hardly more work (arXiv:2205.05198,
// section 5).
class SelectiveRecompute {
 public:
  explicit SelectiveRecompute(Context& context);
  ~SelectiveRecompute();
  SelectiveRecompute(const SelectiveRecompute&) = delete;
  SelectiveRecompute& operator=(const SelectiveRecompute&) = delete;

 private:
  Context& context_;
  bool before_;
};

// Level of activation recomputation for a repeated part of a model, such as a transformer block.
enum class Recompute { kNone, kSelective, kFull };

// Calls fn(inputs) under SelectiveRecompute (selective), as a checkpoint (full), or directly
// (none).
std::vector<Tensor> recompute(Recompute level, const CheckpointFn& fn,
                              const std::vector<Tensor>& inputs);
Tensor recompute(Recompute level, const std::function<Tensor(const Tensor&)>& fn, const Tensor& x);

}  // namespace shale
