#pragma once

#include "shale/base/device.h"
#include "shale/comm/world.h"
#include "shale/models/training/run_config.h"

namespace shale::models {

// Tells the World which ranks share a NUMA node, according to --numa-ranks and the locations of
// their GPUs. Binds this thread, and threads that it starts later, to the CPUs of its GPU's NUMA
// node, so that staging memory is allocated there. Does not bind them if the NUMA node has fewer
// CPUs per rank than the host has on average. Call it before any thread is started. Collective.
// Throws ConfigError on all ranks.
void set_up_numa_nodes(const RunConfig& config, const Device& device, comm::World& world);

}  // namespace shale::models
