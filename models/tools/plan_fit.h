#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shale/models/plan/time/plan_time.h"
#include "shale/models/tools/planned_task.h"

namespace shale::models {

// Whether a planned run fits its devices, and which options to change if it does not.
struct PlanFit {
  int rank = 0;            // rank that holds the most memory
  int64_t bytes = 0;       // bytes held by the device of that rank
  int64_t most_bytes = 0;  // memory of a device; 0: unknown
  bool fits = true;        // also true if most_bytes is unknown
  int64_t micro_batch = 0;  // largest micro-batch that fits, at most 16 times the run's; 0: unknown
  std::vector<std::string> changes;  // options that would make the run fit; each is enough
};

// Checks if the planned ranks fit, and plans other options if they do not. program: its options
// must be resolved and have no memory limit. keeps_batch: plan only micro-batches that divide the
// run's global batch.
PlanFit plan_fit(const PlannedProgram& program, int ranks, std::span<const TimedRank> planned,
                 int64_t most_bytes, bool keeps_batch);

// Returns "fits: 61.2 GiB of 80.0 GiB per device; largest micro-batch that fits: 4"; empty if the
// memory of a device is unknown.
std::string describe(const PlanFit& fit);

}  // namespace shale::models
