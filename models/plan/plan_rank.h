#pragma once

#include <string>
#include <vector>

#include "shale/models/training/report/memory_ledger.h"
#include "shale/models/training/report/rank_memory.h"
#include "shale/models/training/run_config.h"
#include "shale/models/training/task.h"

namespace shale::models {

// What one rank of a run would need, found by running its training steps on the CPU without
// computing them.
struct PlannedRank {
  RankMemory memory;
  std::string place;                         // "pipeline 1, shard 3", the axes longer than 1
  std::vector<MemoryLedger::Share> at_peak;  // of the device's memory
};

// Runs the first steps of rank `rank` of `ranks`: the run's own allocator, tape, sharding,
// recomputation and offload, over a group of which no other rank exists (comm/group_simulated.h),
// with kernels that skip their work (kernels/dry_run.h), in memory that is addresses only
// (runtime/tensor/plan_backend.h). So peaks are those of the run on the CPU, to the byte, and need
// no formula; where a run allocates as its data says, in mixtures of experts, they are those of
// data that is all zeros.
//
// `config` is resolved, with `threads` given. Stored weights are not loaded, and what only looks at
// a run (reports, checkpoints, traces) is left out. Throws ConfigError for a rank that is none and
// for devices other than the CPU, and what the run's own parts throw for options that cannot be.
PlannedRank plan_rank(const RunConfig& config, Task& task, int rank, int ranks);

}  // namespace shale::models
