#pragma once

#include "shale/comm/world.h"
#include "shale/models/plan/time/cluster.h"

namespace shale::models {

// The CPUs that the ranks of a world have, `threads` of a rank each: products, copies of memory and
// all-reduces are measured while all ranks do the same, and the slowest rank's counts; what
// attention reaches is deploy/clusters/cpu_host.json's share. A device is a rank's part of its
// node. Takes about two seconds. Throws ConfigError unless all nodes have equally many ranks, node
// after node. Collective.
Cluster measured_cluster(comm::World& world, int threads);

}  // namespace shale::models
