#pragma once

#include "shale/base/device.h"
#include "shale/comm/world.h"
#include "shale/models/training/run_config.h"

namespace shale::models {

// Tells the World which ranks share a NUMA node, by --numa-ranks and by where their GPUs are, and
// keeps this thread, and those that it starts from here on, on the CPUs of its GPU's node: staging
// memory then lies there. A node on which so many ranks have their GPUs that each would have fewer
// CPUs than the host has for a rank keeps none. Before anything starts threads. Collective. Throws
// ConfigError, on all ranks.
void set_up_numa_nodes(const RunConfig& config, const Device& device, comm::World& world);

}  // namespace shale::models
