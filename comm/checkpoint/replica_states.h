#pragma once

#include <functional>
#include <vector>

#include "shale/comm/checkpoint/layout.h"
#include "shale/runtime/nn/state_part.h"

namespace shale::comm {

// States that differ between replicas (OverReplicas::kEach): a checkpoint stores the states of all
// replicas as one tensor with an additional first dimension, which has a box for each replica.

// Returns a replica's part at its position in the tensor of all replicas' states.
StatePart stacked(StatePart part, int replica, int replicas);

// Number of replicas in a stored tensor; 0 if the tensor does not match the part in other ways.
int64_t stored_replicas(const CheckpointTensor& stored, const StatePart& part);

// Reads the states of `stored` replicas with read(), and sets each of the parts to their mean.
void read_mean(const std::vector<StatePart>& parts, int64_t stored,
               const std::function<void(const std::vector<StatePart>&)>& read);

}  // namespace shale::comm
