#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "shale/models/plan/time/planned_step.h"
#include "shale/models/plan/time/stages.h"

namespace shale::models {

// Layout of a run over its ranks, and what its most loaded rank needs.
struct PlannedLayout {
  std::string flags;       // flags that differ from their defaults, e.g. "--zero 2 --pipeline 4"
  MemoryPeak device;       // peak memory of the most loaded rank
  int64_t host_bytes = 0;  // bytes that this rank offloads to host memory
  std::optional<PlannedStep> step = {};  // set only by search_layouts()
  RunConfig config = {};                 // resolved config of the layout
};

// Plans every combination of --zero, --pipeline (up to 16 stages), --recompute and --offload that
// train_lm accepts on `ranks` ranks, at the run's micro-batch and global batch. Plans the first
// rank of each stage. The result is sorted by decreasing memory. `config` is resolved, with
// `threads` set. Its own values of these flags, and its limit of device memory, are ignored.
// make_task: makes the run's task; each plan uses one task.
std::vector<PlannedLayout> plan_layouts(const RunConfig& config, const MakeTask& make_task,
                                        int ranks);

}  // namespace shale::models
