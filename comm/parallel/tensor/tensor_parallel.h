#pragma once

#include "shale/comm/parallel/tensor/exchange.h"
#include "shale/comm/process_group.h"
#include "shale/runtime/nn/module.h"

namespace shale::comm {

// Shards the layers of a model over mesh ranks as Parameter::split says (arXiv:1909.08053, section
// 3). Between the layers a rank has a slice of the rows (arXiv:2205.05198, section 4.2). Replaces
// parameters, which have no memory yet, by this rank's shards. exchange: the mesh ranks. group:
// their processes. comm::Parallel (comm/parallel/parallel.h) does this for whole models and also
// gives layers their exchange.
//
// Call it before data parallelism, which gets the group as ShardGroups::tensor. Experts that are
// distributed over ranks (comm/parallel/expert) stay whole.
//
// Throws ConfigError for parameters that cannot be sharded, and for a number of ranks that does not
// fit, naming numbers that do; CommError if ranks differ. Collective over the group.
void tensor_parallel(Module& model, ProcessGroup& group, const Exchange& exchange);

}  // namespace shale::comm
