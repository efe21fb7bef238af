#pragma once

#include <cstdint>
#include <vector>

#include "shale/base/config.h"
#include "shale/comm/mesh.h"
#include "shale/models/training/run_config.h"

namespace shale::models {

// What spares slow links: between replicas, the groups of --shard-ranks ranks, and inside one.

// Declares the flags.
void describe_slow_links(ConfigSpec& spec, RunConfig& config);

// Fills in --freeze-step. Throws ConfigError, naming options, for what does not go together.
void resolve_slow_links(RunConfig& config, const comm::ParallelSizes& sizes);

// Steps of a run that differ in what replicas exchange: one of them, and the share of such steps.
struct StepKind {
  int64_t step = 0;
  double share = 1;
};
// Of a resolved configuration, in the order in which they begin; shares add up to 1.
// --outer-streaming counts as if units had no turns.
std::vector<StepKind> step_kinds(const RunConfig& config);

}  // namespace shale::models
