#pragma once

#include <functional>
#include <vector>

#include "shale/runtime/tensor/tensor.h"

namespace shale {

// Activation recomputation: trading time for the memory of what backward needs.

// Runs a segment of a model without keeping what its ops save (arXiv:1604.06174). When backward
// first needs one of these tensors, the segment runs again from its inputs and fills in all that
// are still wanted; gradients are bit for bit those of an ordinary forward. Kept are the inputs,
// which go through the saved-tensor hooks around the call (so they can be offloaded), and the
// outputs as far as others keep them.
//
// The graph is recorded in the first run as always: outputs, hooks and leaves behave as if there
// were no recomputation. Segments may contain segments. The second run sees the same step values
// (dropout masks are the same), training mode and autocast state, runs module hooks as the first
// did (nn/module.h says what that means for them), and ends as soon as nothing more is wanted.
//
// fn must compute the same again: from its inputs, and from tensors and values that do not change
// until backward. Backward throws AutogradError when an input was changed in place, and when the
// second run saves other shapes or dtypes, fewer or more tensors than the first.
using CheckpointFn = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;
std::vector<Tensor> checkpoint(const CheckpointFn& fn, const std::vector<Tensor>& inputs);
Tensor checkpoint(const std::function<Tensor(const Tensor&)>& fn, const Tensor& x);

// Thrown by a saved-tensor hook out of a segment that has computed again what was wanted. Passes
// through ops and modules; nobody but autograd/recompute.cpp stops it.
struct RecomputationDone {};

// While it lives, saved tensors that are cheap to compute from other saved tensors are not kept,
// but computed again when backward needs them (set_recipe() in saved_tensor.h): outputs of norms
// and of GELU. Outputs of GEMMs and of attention are kept, so that backward does hardly more work
// (arXiv:2205.05198, section 5).
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

// How much of a repeated part of a model, such as a transformer block, is computed again.
enum class Recompute { kNone, kSelective, kFull };

// fn(inputs) under SelectiveRecompute (selective), as a checkpoint (full), or as it is (none).
std::vector<Tensor> recompute(Recompute level, const CheckpointFn& fn,
                              const std::vector<Tensor>& inputs);
Tensor recompute(Recompute level, const std::function<Tensor(const Tensor&)>& fn, const Tensor& x);

}  // namespace shale
