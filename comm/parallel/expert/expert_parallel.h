#pragma once

#include <cstdint>
#include <memory>

#include "shale/comm/parallel/expert/expert_exchange.h"
#include "shale/comm/process_group.h"
#include "shale/runtime/nn/module.h"

namespace shale::comm {

// Distributes a model's MoE experts over the ranks of a group: the same number to each rank, in
// order. Afterwards the model has only the parameters of this rank's experts, each whole.
// Parameters must not have memory yet. Tokens go to the ranks of their experts and back. In
// everything else the ranks work on different batches, shards of sequences, or slices of the rows;
// data parallelism gets `group` as ShardGroups::experts. Call it before layers are sharded over
// tensor ranks. Group and result must outlive the model's use.
//
// Throws ConfigError for a model without experts and unless the number of ranks divides the number
// of experts, CommError if ranks differ. Collective.
std::unique_ptr<ExpertExchange> expert_parallel(Module& model, ProcessGroup& group);

// Number of experts per MoE layer of the model; 1 if it has none.
int64_t number_of_experts(Module& model);

}  // namespace shale::comm
