#pragma once

#include "shale/comm/parallel/tensor/tensor_plan.h"
#include "shale/comm/process_group.h"
#include "shale/runtime/nn/exchange.h"

namespace shale::comm {

// Cuts the layers of a model over mesh ranks: its parameters, which have no memory yet, become
// those of one of the ranks that meet in `exchange`, and its layers meet those of the others where
// the plan says so. group: the processes that have these ranks. comm::Parallel (comm/parallel/
// parallel.h) does this for whole models, with their groups.
//
// Comes before data parallelism, to which the group is ShardGroups::tensor; group and exchange
// outlive the use of the model. All ranks get the same batches, and make the same losses. Experts
// that are dealt out to ranks (comm/parallel/expert) stay whole.
//
// Collective over the group. Throws ConfigError for a plan that does not fit the model, for layers
// that cannot be cut so, naming what fits, and CommError if ranks differ.
void tensor_parallel(Module& model, const TensorPlan& plan, ProcessGroup& group,
                     nn::Exchange& exchange);

}  // namespace shale::comm
