#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "shale/models/plan/time/plan_time.h"
#include "shale/runtime/nn/piece.h"

namespace shale::models {

// Makes the task of a run. Each plan uses one task.
using MakeTask = std::function<std::unique_ptr<Task>()>;

// Returns the first rank of each pipeline stage. All ranks of a stage need the same memory and
// time.
std::vector<int> first_ranks_of_stages(const RunConfig& config, int ranks);

// Returns the number of micro-batches in a step. `config` must be resolved.
int64_t micro_batches(const RunConfig& config, int ranks);

// Returns a run with only the steps and micro-batches that determine its peak memory and that
// with_micro_batches() needs. A run with validations or several kinds of steps keeps all steps. A
// run that measures kernels or profiles memory is not shortened at all.
RunConfig shortened(const RunConfig& config, int ranks, bool measures);

// Plans the first rank of each pipeline stage, in order, with a shortened run, and extrapolates the
// times to all micro-batches. Stages with equal pieces and equal links have equal steps. Only the
// first of such stages is planned; it holds the most memory, because its forward is furthest ahead
// of its backward. The other ones get a copy of its plan, so their RankMemory::rank is the planned
// rank. machines: null: plans memory only. Throws as plan_time().
std::vector<TimedRank> plan_stages(const RunConfig& config, const MakeTask& make_task, int ranks,
                                   const PlanMachines* machines);

}  // namespace shale::models
