#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shale/models/plan/time/planned_step.h"

namespace shale::models {

// One way to lay a run out over its ranks, and what its most loaded rank needs.
struct PlannedLayout {
  std::string flags;  // "--zero 2 --pipeline 4 --recompute full", those that are not the default
  MemoryPeak device;  // of the rank with the most that is held
  int64_t host_bytes = 0;                // that it holds of the host, of what is offloaded
  std::optional<PlannedStep> step = {};  // of search_layouts()
  RunConfig config = {};                 // resolved
};

// Every combination of --zero, --pipeline (up to 16 stages), --recompute and --offload that
// train_lm would take on so many ranks, at the run's micro-batch and global batch, planned: the
// first rank of each stage of each. The most held first. `config` is resolved, with `threads`
// given; its own values of these flags, and its budget of device memory, do not count.
// make_task: the run's task, which one plan takes.
std::vector<PlannedLayout> plan_layouts(const RunConfig& config,
                                        const std::function<std::unique_ptr<Task>()>& make_task,
                                        int ranks);

// The first rank of each pipeline stage: the ranks of a stage need alike.
std::vector<int> first_ranks_of_stages(const RunConfig& config, int ranks);

}  // namespace shale::models
