#pragma once

#include "shale/comm/world.h"
#include "shale/models/plan/time/cluster.h"

namespace shale::models {

// Describes the CPUs of a world's ranks, with `threads` threads per rank, by measurement: GEMMs,
// memory copies and all-reduces run on all ranks at the same time, and the slowest rank counts. The
// share of the peak that attention reaches comes from deploy/clusters/cpu_host.json. A "device" is
// one rank's part of its node. Takes about two seconds. Throws ConfigError unless all nodes have
// the same number of consecutive ranks. Collective.
Cluster measured_cluster(comm::World& world, int threads);

}  // namespace shale::models
