#pragma once

#include <functional>
#include <string>
#include <vector>

#include "shale/runtime/optim/shard.h"

namespace shale::optim {

class OutlierSkip;

// Global-norm clipping (arXiv:1211.5063, algorithm 1). Writes the L2 norm over all shards to
// StepState::grad_norm, and min(1, max_norm / norm) to clip_factor. Gradients do not change; the
// optimizer applies the factor. max_norm 0: computes only the norm. Does not wait for the device.
// Gradients in host memory must have arrived there; the CPU computes their norm.
//
// Ranks that hold parts of the gradient compute the norm together (ShardPeers); the call is then
// collective. The norm's bits do not depend on how the gradient is divided among ranks. Until
// zero_grad(), an optimizer that steps these shards, or some of their parameters, applies the
// latest result. Throws ConfigError for shards with different peers.
//
// outliers: decides from the norm whether to skip the step; null: never skips. ranks: collectives
// over other ranks that hold parts of the gradient.
struct ClipRanks {
  // Replaces ShardPeers::gather if other ranks hold the rest of the model, such as pipeline stages
  // or tensor-parallel shards. Returns the concatenated vectors of all ranks.
  std::function<Tensor(const Tensor& x)> gather = {};
  // For replicas whose gradients are not summed: each clips its gradient by its own norm. copies:
  // number of replicas, by which the gradient is scaled to the size of the sum. agree: takes the
  // maximum of an i32 on the device over the replicas.
  int copies = 1;
  std::function<void(const View& flag)> agree = {};
};
void clip_grad_norm(Context& context, const std::vector<OptimShard>& shards, float max_norm,
                    OutlierSkip* outliers = nullptr, const ClipRanks& ranks = {});

// Returns the name of the first parameter with an infinite or NaN gradient; empty if there is none.
// For error reports, because it waits for the device.
std::string first_non_finite(const std::vector<OptimShard>& shards);

}  // namespace shale::optim
