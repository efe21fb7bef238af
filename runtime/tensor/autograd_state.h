#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <vector>

#include "shale/base/dtype.h"

namespace shale {

class DeferredGrads;
class OpRecorder;
class PointwiseTrace;
class Tensor;

// Hooks that keep saved tensors between forward and backward, for recomputation, offload or
// compression. pack() is called when an op saves a tensor, unpack() when backward needs it.
struct SavedTensorHooks {
  std::function<std::shared_ptr<void>(const Tensor&)> pack;
  std::function<Tensor(const std::shared_ptr<void>&)> unpack;
};

// Modes that change how ops behave. When a segment is recomputed, the modes are those of its first
// run.
struct AutogradModes {
  bool enabled = true;           // false: autograd records nothing
  bool training = true;          // false: dropout has no effect
  // true: recipes replace tensors that are cheap to recompute (SelectiveRecompute)
  bool selective = false;
  DType autocast = DType::kF32;  // compute dtype set by amp::Autocast; kF32: autocast is off
  bool recomputing = false;      // true: a segment is being recomputed during backward
  // Number of random tensors (randn(), uniform()) made so far in optimizer step draws_step. A
  // recomputed segment starts from the number of its first run, so it makes the same tensors.
  uint64_t draws = 0;
  int64_t draws_step = 0;
};

// Hooks around every backward of a context: `begin` is called when the outermost backward() begins,
// `end` when it has finished without an exception.
struct BackwardHooks {
  std::function<void()> begin;
  std::function<void()> end;
};

// Autograd state of a Context.
struct AutogradState : AutogradModes {
  int backward_depth = 0;  // nesting depth of running backward() calls
  std::list<BackwardHooks> backward_hooks;
  uint64_t next_node = 0;  // number of the next node; nodes are numbered in the order of creation
  // active hooks, the innermost scope last
  std::vector<std::shared_ptr<const SavedTensorHooks>> saved_hooks;
  // Object that takes postponed leaf gradients; null outside backward_inputs().
  DeferredGrads* deferred = nullptr;
  // inside fused(): trace to which elementwise ops add themselves; else null
  PointwiseTrace* trace = nullptr;
  // Dropout masks depend on StepState::sample. True if the caller sets it before each forward.
  // False: it is first_sample at the beginning of a step, and backward() adds the number of samples
  // that dropout has seen. So all micro-batches and data-parallel ranks have different masks.
  bool numbers_samples = false;
  uint64_t first_sample = 0;       // first sample of this rank in a step
  int64_t seen_samples = 0;  // number of samples that dropout has seen since the last backward
  // object to which ops report themselves (op_recorder.h); usually null
  OpRecorder* recorder = nullptr;
};

}  // namespace shale
