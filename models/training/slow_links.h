#pragma once

#include "shale/base/config.h"
#include "shale/models/training/run_config.h"

namespace shale::models {

// What spares links between replicas, the groups of --shard-ranks ranks.

// Declares the flags.
void describe_slow_links(ConfigSpec& spec, RunConfig& config);

// Fills in --freeze-step. Throws ConfigError, naming options, for what does not go together.
void resolve_slow_links(RunConfig& config, int replicas);

}  // namespace shale::models
