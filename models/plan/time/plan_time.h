#pragma once

#include "shale/models/plan/time/at_once.h"
#include "shale/models/plan/time/step_clock.h"

namespace shale::models {

// Machines on which a run is planned.
struct PlanMachines {
  const Cluster& cluster;
  KernelTimes& kernels;
  bool lists_memory = true;  // fill in PlannedRank::at_peak, which takes time
  size_t threads = kPlanThreads;  // number of stages that are planned at the same time
};

struct TimedRank : PlannedRank {
  RankTime time;  // by the rank's simulated clock; mean over the kinds of steps
};

// Runs plan_rank() with a StepClock. Throws what plan_rank() throws; also ConfigError if the run
// offloads and the cluster file has no speed of the host.
TimedRank plan_time(const RunConfig& config, Task& task, int rank, int ranks,
                    const PlanMachines& machines);

}  // namespace shale::models
