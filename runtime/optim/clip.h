#pragma once

#include <functional>
#include <string>
#include <vector>

#include "shale/runtime/optim/shard.h"

namespace shale::optim {

class OutlierSkip;

// Global-norm clipping (arXiv:1211.5063, algorithm 1): writes the L2 norm over all shards to
// StepState::grad_norm and min(1, max_norm / norm) to clip_factor, which the optimizer applies; it
// does not change gradients. max_norm 0: computes only the norm. Does not wait for the device.
// Gradients in host memory are measured on the CPU, and must have arrived there. Ranks that hold
// parts of the gradient measure it together (ShardPeers), which makes the call collective. The
// norm's bits do not depend on how the gradient is divided among ranks. Until zero_grad(), the
// optimizer that steps these shards, or some of their parameters, applies the latest result. Throws
// ConfigError for shards with different peers.
//
// outliers: decides from the norm whether to skip the step; null: never skips. ranks: collectives
// over further ranks that hold parts of the gradient.
struct ClipRanks {
  // Replaces ShardPeers::gather if other ranks hold the rest of the model, such as pipeline stages
  // or tensor-parallel shards: returns all ranks' vectors concatenated.
  std::function<Tensor(const Tensor& x)> gather = {};
  // For replicas whose gradients are not reduced, but clipped each by its own norm: the number of
  // replicas, which scales a gradient to the size of the whole one, and a function that takes the
  // maximum over the replicas of an i32 on the device.
  int copies = 1;
  std::function<void(const View& flag)> agree = {};
};
void clip_grad_norm(Context& context, const std::vector<OptimShard>& shards, float max_norm,
                    OutlierSkip* outliers = nullptr, const ClipRanks& ranks = {});

// Name of the first parameter with an infinite or NaN gradient; empty if there is none. For error
// reports; waits for the device.
std::string first_non_finite(const std::vector<OptimShard>& shards);

}  // namespace shale::optim
