#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "shale/models/plan/time/planned_step.h"
#include "shale/models/plan/time/stages.h"

namespace shale::models {

// A layout of a run over its ranks, and the needs of its most loaded rank.
struct PlannedLayout {
  std::string flags;       // options that differ from their defaults: "--zero 2 --pipeline 4"
  MemoryPeak device;       // peak memory of the most loaded rank
  int64_t host_bytes = 0;  // offloaded bytes of that rank, in host memory
  std::optional<PlannedStep> step = {};  // only search_layouts() sets it
  RunConfig config = {};                 // resolved config of the layout
};

// Plans every combination of --zero, --pipeline (up to 16 stages), --recompute and --offload that
// train_lm accepts on `ranks` ranks, at the run's micro-batch and global batch: the first rank of
// each stage. Sorted by decreasing memory. `config` is resolved, with `threads` set; its own values
// of these flags and its device memory budget are ignored. make_task: makes the run's task; one
// plan uses one task.
std::vector<PlannedLayout> plan_layouts(const RunConfig& config, const MakeTask& make_task,
                                        int ranks);

}  // namespace shale::models
