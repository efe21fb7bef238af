#pragma once

#include <cstdint>
#include <memory>

#include "shale/comm/parallel/expert/expert_exchange.h"
#include "shale/comm/process_group.h"
#include "shale/runtime/nn/module.h"

namespace shale::comm {

// Distributes a model's MoE experts over the ranks of a group, equally many to each, in order:
// parameters, which have no memory yet, become those of this rank's experts, each whole. Tokens go
// to the ranks of their experts and back. Otherwise the ranks work on different batches, shards of
// sequences, or slices of the rows: data parallelism gets `group` as ShardGroups::experts. Call it
// before layers are sharded over tensor ranks. Group and result outlive the model's use.
//
// Collective. Throws ConfigError for a model without experts and unless the ranks divide the number
// of experts, CommError if ranks differ.
std::unique_ptr<ExpertExchange> expert_parallel(Module& model, ProcessGroup& group);

// Number of experts per MoE layer of the model; 1 if it has none.
int64_t number_of_experts(Module& model);

}  // namespace shale::comm
