#pragma once

#include "shale/comm/parallel/tensor/exchange.h"
#include "shale/comm/process_group.h"
#include "shale/runtime/nn/module.h"

namespace shale::comm {

// Shards the layers of a model over mesh ranks, as they say that ranks may share them
// (Parameter::split; arXiv:1909.08053, section 3, with slices of the rows between the layers as in
// arXiv:2205.05198, section 4.2): its parameters, which have no memory yet, become those of one of
// the ranks that meet in `exchange`. group: the processes that have these ranks. comm::Parallel
// (comm/parallel/parallel.h) does this for whole models, and tells them where ranks meet.
//
// Comes before data parallelism, to which the group is ShardGroups::tensor. Experts that are dealt
// out to ranks (comm/parallel/expert) stay whole.
//
// Collective over the group. Throws ConfigError for parameters that no layer lets ranks share, and
// for a number of ranks that does not fit, naming what does; CommError if ranks differ.
void tensor_parallel(Module& model, ProcessGroup& group, const Exchange& exchange);

}  // namespace shale::comm
