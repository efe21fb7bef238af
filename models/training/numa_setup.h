#pragma once

#include "shale/base/device.h"
#include "shale/comm/world.h"
#include "shale/models/training/run_config.h"

namespace shale::models {

// Tells the World which ranks share a NUMA node, as --numa-ranks and the places of their GPUs say,
// and binds this thread and the threads that it starts later to the CPUs of its GPU's NUMA node, so
// that staging memory is allocated there. No thread is bound to a NUMA node with fewer CPUs for
// each of its ranks than the host has on average. Call it before any thread is started. Collective.
// Throws ConfigError on all ranks.
void set_up_numa_nodes(const RunConfig& config, const Device& device, comm::World& world);

}  // namespace shale::models
