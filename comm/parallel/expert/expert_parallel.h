#pragma once

#include <cstdint>
#include <memory>

#include "shale/comm/parallel/expert/expert_exchange.h"
#include "shale/comm/process_group.h"
#include "shale/runtime/nn/module.h"

namespace shale::comm {

// Deals out the experts of a model's mixtures over the ranks of a group, equally many to each, in
// order: their parameters, which have no memory yet, become those of this rank's, whole. Tokens of
// all ranks go to the ranks of their experts and back. Otherwise the ranks have batches, parts of
// sequences, or slices of the rows of their own: `group` is ShardGroups::experts to data
// parallelism. Comes before tensor_parallel(). Group and result outlive the use of the model.
//
// Collective. Throws ConfigError for a model without experts and for a number of them that the
// ranks do not divide, CommError if ranks differ.
std::unique_ptr<ExpertExchange> expert_parallel(Module& model, ProcessGroup& group);

// Of a mixture of the model; 1 where it has none.
int64_t number_of_experts(Module& model);

}  // namespace shale::comm
