#pragma once

#include <functional>
#include <vector>

#include "shale/comm/checkpoint/layout.h"
#include "shale/runtime/nn/state_part.h"

namespace shale::comm {

// States of which every replica has its own (OverReplicas::kEach): on a checkpoint one tensor with
// those of all, which is cut into a box for each along a dimension before the others.

// The part with its place in that tensor.
StatePart stacked(StatePart part, int replica, int replicas);

// Of how many replicas a stored tensor is, if it is this part's but for their number; else 0.
int64_t stored_replicas(const CheckpointTensor& stored, const StatePart& part);

// Sets parts, which are stacked, to the mean of those that `stored` replicas have written. read():
// reads such parts.
void read_mean(const std::vector<StatePart>& parts, int64_t stored,
               const std::function<void(const std::vector<StatePart>&)>& read);

}  // namespace shale::comm
