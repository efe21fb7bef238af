#pragma once

#include <functional>
#include <string>
#include <vector>

#include "shale/runtime/optim/shard.h"

namespace shale::optim {

class OutlierSkip;

// Global-norm clipping (arXiv:1211.5063, algorithm 1): leaves the L2 norm over all shards in
// StepState::grad_norm and min(1, max_norm / norm) in clip_factor, which the optimizer applies;
// gradients are not touched. max_norm 0: the norm only. Nothing waits for the device. Gradients in
// host memory, which must have arrived there, are measured on the CPU.
// Ranks that hold parts of the gradient measure it together (ShardPeers), which makes the call
// collective; the norm's bits do not depend on how the gradient is divided among them. The
// optimizer that steps these shards, or some of their parameters, applies what was found last,
// until zero_grad(). Throws ConfigError for shards that are cut over different ranks.
//
// outliers: decides by the norm whether the step is one to skip; null: none is.
// ranks: what others know of the gradient.
struct ClipRanks {
  // In place of that of ShardPeers, all ranks' vectors one after another, where others hold the
  // rest of the model, as stages of a pipeline and leaves of layers that are cut do.
  std::function<Tensor(const Tensor& x)> gather = {};
  // Replicas whose gradients are not added up, but each clipped by its own norm: how many, by which
  // a gradient counts as one of the whole, and the largest over them of an i32 on the device.
  int copies = 1;
  std::function<void(const View& flag)> agree = {};
};
void clip_grad_norm(Context& context, const std::vector<OptimShard>& shards, float max_norm,
                    OutlierSkip* outliers = nullptr, const ClipRanks& ranks = {});

// Name of the first parameter with an infinite or NaN gradient; empty if there is none. For
// reports: waits for the device.
std::string first_non_finite(const std::vector<OptimShard>& shards);

}  // namespace shale::optim
