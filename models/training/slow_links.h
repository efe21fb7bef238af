#pragma once

#include <cstdint>
#include <vector>

#include "shale/base/config.h"
#include "shale/comm/mesh.h"
#include "shale/models/training/run_config.h"

namespace shale::models {

// Options that reduce traffic on slow links: between replicas, which are the groups of
// --shard-ranks ranks, and inside a replica.

// Declares the flags.
void describe_slow_links(ConfigSpec& spec, RunConfig& config);

// Fills in --freeze-step. Throws ConfigError, naming options, for incompatible ones.
void resolve_slow_links(RunConfig& config, const comm::ParallelSizes& sizes);

// A kind of step with the same exchange between replicas: an example step, and the share of such
// steps.
struct StepKind {
  int64_t step = 0;
  double share = 1;
};
// Returns the kinds of steps of a resolved configuration, in order of their first step; shares add
// up to 1. --outer-streaming counts as if all units were exchanged in the same step.
std::vector<StepKind> step_kinds(const RunConfig& config);

}  // namespace shale::models
