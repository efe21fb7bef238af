#pragma once

#include <memory>

#include "shale/comm/parallel/tensor/tensor_plan.h"
#include "shale/comm/process_group.h"
#include "shale/runtime/nn/exchange.h"

namespace shale::comm {

// How finely layers are cut.
struct TensorOptions {
  // Parts into which every layer is cut, a power of two that the ranks divide. With equal leaves
  // losses have the same bits on any number of ranks (f32 gradients). 0: one for each rank, of
  // which there may then be any number.
  int leaves = 0;
  bool overlap = true;  // rows travel while others are multiplied
  int pieces = 0;       // of rows, at most (nn::Exchange::row_pieces()); 0: as many as leaves
};

// Cuts the layers of a model over the ranks of a group: its parameters, which have no memory yet,
// become those of this rank's leaves, and its layers meet those of the other ranks where the plan
// says so. Comes before data parallelism, to which the group is ShardGroups::tensor; group and
// result outlive the use of the model. All ranks of the group get the same batches, and make the
// same losses. Experts that are dealt out to ranks (comm/parallel/expert) stay whole.
//
// Collective. Throws ConfigError for a plan that does not fit the model, for layers that cannot be
// cut so, naming what fits, and CommError if ranks differ.
std::unique_ptr<nn::Exchange> tensor_parallel(Module& model, const TensorPlan& plan,
                                              ProcessGroup& group,
                                              const TensorOptions& options = {});

// The same for one mesh rank, of those that meet in `exchange`; `group`: the processes that have
// them.
void tensor_parallel(Module& model, const TensorPlan& plan, ProcessGroup& group,
                     nn::Exchange& exchange);

}  // namespace shale::comm
