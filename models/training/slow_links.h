#pragma once

#include "shale/base/config.h"
#include "shale/comm/mesh.h"
#include "shale/models/training/run_config.h"

namespace shale::models {

// What spares slow links: between replicas, the groups of --shard-ranks ranks, and inside one.

// Declares the flags.
void describe_slow_links(ConfigSpec& spec, RunConfig& config);

// Fills in --freeze-step. Throws ConfigError, naming options, for what does not go together.
void resolve_slow_links(RunConfig& config, const comm::ParallelSizes& sizes);

}  // namespace shale::models
