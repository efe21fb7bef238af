#pragma once

#include <optional>
#include <string>
#include <vector>

#include "shale/models/plan/step_clock.h"
#include "shale/models/training/report/memory_ledger.h"
#include "shale/models/training/report/rank_memory.h"
#include "shale/models/training/run_config.h"
#include "shale/models/training/task.h"

namespace shale::models {

// Where a run is planned to be, if its time is asked for.
struct PlanMachines {
  const Cluster& cluster;
  KernelTimes& kernels;
  bool lists_memory = true;  // whether PlannedRank::at_peak is asked for, which takes its time
};

// What one rank of a run would need, found by running its training steps on the CPU without
// computing them.
struct PlannedRank {
  RankMemory memory;
  std::string place;                         // "pipeline 1, shard 3", the axes longer than 1
  std::vector<MemoryLedger::Share> at_peak;  // of the device's memory
  std::optional<RankTime> time = {};         // of the last of these steps, by its own clock
};

// Runs the first steps of rank `rank` of `ranks`: the run's own allocator, tape, sharding,
// recomputation and offload, over a group of which no other rank exists
// (comm/groups/group_simulated.h), with kernels that skip their work (kernels/dry_run.h), in memory
// that is addresses only (runtime/tensor/plan_backend.h). So peaks are those of the run on the CPU,
// to the byte, and need no formula; where a run allocates as its data says, in mixtures of experts,
// they are those of tokens that all experts get as many of, and where it depends on other ranks'
// speed, those beside slow ranks.
//
// `config` is resolved, with `threads` given. Stored weights are not loaded, and what only looks at
// a run (reports, checkpoints, traces) is left out. machines: say how long a step takes; null: only
// memory counts. They know of no time of what is offloaded. Throws ConfigError for a rank that is
// none, and what the run's own parts throw for options that cannot be.
PlannedRank plan_rank(const RunConfig& config, Task& task, int rank, int ranks,
                      const PlanMachines* machines = nullptr);

// Whether a run's memory depends on how fast the ranks are: stages 2 and 3 give back a gradient
// when its sum is done, if that is beside backward. A run then needs at most what is planned.
bool memory_depends_on_time(const RunConfig& config, int ranks);

}  // namespace shale::models
