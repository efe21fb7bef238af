#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "shale/models/plan/time/plan_time.h"
#include "shale/runtime/nn/piece.h"

namespace shale::models {

// Makes the task of a run. One plan uses one task.
using MakeTask = std::function<std::unique_ptr<Task>()>;

// First rank of each pipeline stage; the ranks of a stage have equal needs.
std::vector<int> first_ranks_of_stages(const RunConfig& config, int ranks);

// Number of micro-batches in a step of a resolved run.
int64_t micro_batches(const RunConfig& config, int ranks);

// Returns the run with just enough steps and micro-batches for its peak memory and for
// with_micro_batches(). Runs with several kinds of steps, validations or a memory profile keep
// their steps; a run that measures kernels keeps everything.
RunConfig shortened(const RunConfig& config, int ranks, bool measures);

// Plans the first rank of each pipeline stage, in order, with a shortened run whose times are
// extrapolated to all micro-batches. Stages with equal pieces and equal links have equal steps. Of
// these, only the first is planned, which holds the most memory because its forward is furthest
// ahead of its backward. The others have a copy of its plan, whose RankMemory::rank is the planned
// rank. machines: null: memory only. Throws as plan_time().
std::vector<TimedRank> plan_stages(const RunConfig& config, const MakeTask& make_task, int ranks,
                                   const PlanMachines* machines);

}  // namespace shale::models
