#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <vector>

#include "shale/base/dtype.h"

namespace shale {

class DeferredGrads;
class PointwiseTrace;
class Tensor;

// How saved tensors are kept between forward and backward: the one seam for recompute, offload and
// compression. pack() is called when an op saves a tensor, unpack() when backward needs it.
struct SavedTensorHooks {
  std::function<std::shared_ptr<void>(const Tensor&)> pack;
  std::function<Tensor(const std::shared_ptr<void>&)> unpack;
};

// What changes how ops behave; a segment that is computed again runs under those of its first run.
struct AutogradModes {
  bool enabled = true;           // false: ops record nothing
  bool training = true;          // false: dropout does nothing
  bool selective = false;        // recipes are kept instead of cheap tensors (SelectiveRecompute)
  DType autocast = DType::kF32;  // of amp::Autocast; f32: off
  bool recomputing = false;      // a segment runs again, inside a backward
};

// What wants to know about every backward of a context: called when the outermost backward()
// begins, and when it has ended without an exception.
struct BackwardHooks {
  std::function<void()> begin;
  std::function<void()> end;
};

// Autograd's part of a Context.
struct AutogradState : AutogradModes {
  int backward_depth = 0;  // backward() calls that are running; they nest
  std::list<BackwardHooks> backward_hooks;
  uint64_t next_node = 0;  // nodes are numbered in the order of their making
  std::vector<std::shared_ptr<const SavedTensorHooks>> saved_hooks;  // the innermost is last
  DeferredGrads* deferred = nullptr;  // inside backward_inputs(): where gradients of leaves wait
  PointwiseTrace* trace = nullptr;    // inside fused(): what elementwise ops add themselves to
  // Dropout masks differ by StepState::sample. Who sets it before each forward says so here; else
  // it is first_sample at the beginning of a step, and backward() adds the samples that dropout has
  // seen, so that no two micro-batches, nor two ranks of data parallelism, have one mask.
  bool numbers_samples = false;
  uint64_t first_sample = 0;  // of this rank, in a step
  int64_t seen_samples = 0;   // by dropout, since the last backward
};

}  // namespace shale
