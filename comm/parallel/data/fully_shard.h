#pragma once

#include "shale/comm/parallel/data/data_parallel.h"

namespace shale::comm {

// Makes a module a unit of data parallelism, by default of stage 3, for custom training loops. Call
// it for inner modules first. The call for the model itself takes all remaining parameters:
//
//   for (Module* block : model.blocks()) comm::fully_shard(*block, context, group);
//   comm::fully_shard(model, context, group);  // the rest: embedding, last norm, head
//   optim::AdamW optimizer(comm::optim_shards(model), {...});
//   for each step:
//     optimizer.prepare(context, step, lr);
//     // Hooks gather parameters, and add gradients over the ranks: a sum, not a mean.
//     backward(comm::mean_over_ranks(model, model.loss(batch)));
//     comm::clip_grad_norm(model, 1);
//     optimizer.step();
//     optimizer.zero_grad();
//
// The module's forward must use Module::run. Parameters get memory and initial values in this call,
// so that a model too large for one rank never exists whole. The root of the module's tree owns the
// result. Context, groups and World must outlive the model. All units of a tree must have the same
// context, groups, stage, overlap, reproducible, prefetch and seed, and an offload_share of 1;
// other options may differ between units. Throws what DataParallel throws. Throws ConfigError for
// units that differ where they must not, and for a module inside a sharded one. Collective.
FlatUnit& fully_shard(Module& module, Context& context, const ShardGroups& groups,
                      const DataParallelOptions& options = {.stage = 3});
FlatUnit& fully_shard(Module& module, Context& context, ProcessGroup& group,
                      const DataParallelOptions& options = {.stage = 3});

// Returns the DataParallel that fully_shard() made for the module's tree. Use it for gradient
// accumulation (begin_backward, set_no_sync), for explicit unshard() and reshard(), and to read
// full tensors. Throws InternalError unless the module is sharded.
DataParallel& data_parallel_of(const Module& module);

// This rank's shards, for an optimizer. Throws InternalError unless the model is sharded.
std::vector<OptimShard> optim_shards(const Module& model);
// Calls DataParallel::mean_over_ranks(): returns a scaled loss. Its gradients, added over the
// ranks, are those of the mean over all samples. loss: this rank's mean over `weight` samples.
// Throws InternalError unless the model is sharded. Collective.
Tensor mean_over_ranks(const Module& model, const Tensor& loss, double weight = 1);
// Limits the norm of the whole gradient, over all units and ranks. The clip factor stays on the
// device; optimizer steps apply it until zero_grad(). Throws InternalError unless the model is
// sharded. Collective.
void clip_grad_norm(const Module& model, float max_norm);

}  // namespace shale::comm
