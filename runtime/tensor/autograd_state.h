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

// Keeps saved tensors between forward and backward; recomputation, offload and compression use
// these hooks. pack() is called when an op saves a tensor, unpack() when backward needs it.
struct SavedTensorHooks {
  std::function<std::shared_ptr<void>(const Tensor&)> pack;
  std::function<Tensor(const std::shared_ptr<void>&)> unpack;
};

// Modes that change how ops behave. A recomputed segment runs under the modes of its first run.
struct AutogradModes {
  bool enabled = true;           // false: ops record nothing
  bool training = true;          // false: dropout has no effect
  bool selective = false;        // saves recipes to recompute cheap tensors (SelectiveRecompute)
  DType autocast = DType::kF32;  // set by amp::Autocast; f32: off
  bool recomputing = false;      // a segment is being recomputed during backward
  // Number of random tensors (randn(), uniform()) made in optimizer step draws_step. A recomputed
  // segment makes those of its first run.
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
  int backward_depth = 0;  // running backward() calls; they nest
  std::list<BackwardHooks> backward_hooks;
  uint64_t next_node = 0;  // number of the next node; nodes count in creation order
  std::vector<std::shared_ptr<const SavedTensorHooks>> saved_hooks;  // the innermost is last
  // Inside backward_inputs(): destination of postponed leaf gradients.
  DeferredGrads* deferred = nullptr;
  PointwiseTrace* trace = nullptr;  // inside fused(): elementwise ops record themselves here
  // True if the caller sets StepState::sample, on which dropout masks depend, before each forward.
  // Otherwise the sample is first_sample at the beginning of a step, and backward() adds the number
  // of samples that dropout has seen. All micro-batches and data-parallel ranks then have different
  // masks.
  bool numbers_samples = false;
  uint64_t first_sample = 0;       // first sample of this rank in a step
  int64_t seen_samples = 0;        // samples seen by dropout since the last backward
  OpRecorder* recorder = nullptr;  // ops report themselves here (op_recorder.h); usually null
};

}  // namespace shale
