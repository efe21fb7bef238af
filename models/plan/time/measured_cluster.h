#pragma once

#include "shale/comm/world.h"
#include "shale/models/plan/time/cluster.h"

namespace shale::models {

// Measures the CPUs of a world's ranks, with `threads` threads per rank, and describes them as a
// cluster whose devices are ranks. GEMMs, memory copies and all-reduces run on all ranks at the
// same time, and the slowest rank counts. The fraction of the peak that attention reaches is not
// measured; it is that of deploy/clusters/cpu_host.json. Takes about two seconds. Throws
// ConfigError unless all nodes have the same number of consecutive ranks. Collective.
Cluster measured_cluster(comm::World& world, int threads);

}  // namespace shale::models
