#pragma once

#include <functional>
#include <string>
#include <vector>

#include "shale/runtime/optim/shard.h"

namespace shale::optim {

// Global-norm clipping (arXiv:1211.5063, algorithm 1): leaves the L2 norm over all shards in
// StepState::grad_norm and min(1, max_norm / norm) in clip_factor, which the optimizer applies;
// gradients are not touched. max_norm 0: the norm only. Nothing waits for the device. Gradients in
// host memory, which must have arrived there, are measured on the CPU.
//
// `gather`, given this rank's sum (a kernels::FixedSum, as bytes), returns the sums of all ranks
// when each holds a part of the gradient; null when every rank has all of it. The norm's bits do
// not depend on how the gradient is divided among ranks.
using GatherSums = std::function<Tensor(const Tensor& sum)>;
void clip_grad_norm(Context& context, const std::vector<OptimShard>& shards, float max_norm,
                    const GatherSums& gather = {});

// Name of the first parameter with an infinite or NaN gradient; empty if there is none. For
// reports: waits for the device.
std::string first_non_finite(const std::vector<OptimShard>& shards);

}  // namespace shale::optim
