#pragma once

#include <cstdint>
#include <vector>

#include "shale/base/config.h"
#include "shale/comm/mesh.h"
#include "shale/models/training/run_config.h"

namespace shale::models {

// Options that reduce traffic on slow links. A replica is a group of --shard-ranks ranks; the links
// are those between replicas, or inside a replica.

// Declares the flags of the options.
void describe_slow_links(ConfigSpec& spec, RunConfig& config);

// Fills in --freeze-step. Throws ConfigError, naming options, for incompatible ones.
void resolve_slow_links(RunConfig& config, const comm::ParallelSizes& sizes);

// Steps with the same exchange between replicas: one of them as example, and their fraction of all
// steps.
struct StepKind {
  int64_t step = 0;
  double share = 1;
};
// Returns the kinds of steps of a resolved run, in order of their first step. Their shares add up
// to 1. For --outer-streaming, assumes that all units are exchanged in the same step.
std::vector<StepKind> step_kinds(const RunConfig& config);

}  // namespace shale::models
