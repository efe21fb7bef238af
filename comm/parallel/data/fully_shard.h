#pragma once

#include "shale/comm/parallel/data/data_parallel.h"

namespace shale::comm {

// Makes a module a unit of data parallelism, by default of stage 3, for a training loop of one's
// own. Inner modules come first; what is left of the model follows with the model itself:
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
// The module's forward goes through Module::run. Parameters get memory and initial values here, so
// that a model too large for one rank never exists whole. The root of the module's tree keeps what
// this makes; context, groups and World outlive the model. All units of a tree have the same
// context and groups and the same stage, overlap, reproducible, prefetch and seed; the other
// options are the unit's own, except offload_share, which is 1. Collective. Throws what
// DataParallel throws, and ConfigError for units that differ where they must not, and for a module
// whose parameters are in a unit around it already.
FlatUnit& fully_shard(Module& module, Context& context, const ShardGroups& groups,
                      const DataParallelOptions& options = {.stage = 3});
FlatUnit& fully_shard(Module& module, Context& context, ProcessGroup& group,
                      const DataParallelOptions& options = {.stage = 3});

// What fully_shard() made of the module's tree: accumulation (begin_backward, set_no_sync),
// unshard() and reshard() by hand, full tensors. Throws InternalError if it is not sharded.
DataParallel& data_parallel_of(const Module& module);

// What an optimizer of the model steps on this rank. Throws InternalError if it is not sharded.
std::vector<OptimShard> optim_shards(const Module& model);
// See DataParallel: a loss whose gradients, which ranks add up, are those of the mean over all
// samples. loss: this rank's mean over `weight` samples. Collective. Throws as above.
Tensor mean_over_ranks(const Module& model, const Tensor& loss, double weight = 1);
// Bounds the norm of the whole gradient, of all units and ranks: what optimizer steps multiply it
// with, until zero_grad(), is left on the device. Collective. Throws as above.
void clip_grad_norm(const Module& model, float max_norm);

}  // namespace shale::comm
