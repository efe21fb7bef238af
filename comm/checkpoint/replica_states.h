#pragma once

#include <functional>
#include <vector>

#include "shale/comm/checkpoint/layout.h"
#include "shale/runtime/nn/state_part.h"

namespace shale::comm {

// Some states differ between replicas (OverReplicas::kEach). A checkpoint stores such a state of
// all replicas as one tensor with an additional first dimension, which has a box for each replica.

// Returns a replica's part at its position in the tensor of all replicas' states.
StatePart stacked(StatePart part, int replica, int replicas);

// Returns the number of replicas in a stored tensor, or 0 if the tensor differs from `part` in type
// or in another dimension.
int64_t stored_replicas(const CheckpointTensor& stored, const StatePart& part);

// Sets each of the parts to its mean over the `stored` replicas of the checkpoint. Calls read() to
// read the state of one replica.
void read_mean(const std::vector<StatePart>& parts, int64_t stored,
               const std::function<void(const std::vector<StatePart>&)>& read);

}  // namespace shale::comm
