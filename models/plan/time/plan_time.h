#pragma once

#include "shale/models/plan/time/step_clock.h"

namespace shale::models {

// The machines that a run is planned for.
struct PlanMachines {
  const Cluster& cluster;
  KernelTimes& kernels;
  bool lists_memory = true;  // fill in PlannedRank::at_peak, which takes time
};

struct TimedRank : PlannedRank {
  RankTime time;  // of a step: the mean over the kinds of steps, by the rank's own clock
};

// plan_rank() with a StepClock. Throws ConfigError as well where the cluster does not say how fast
// its hosts are and the run offloads.
TimedRank plan_time(const RunConfig& config, Task& task, int rank, int ranks,
                    const PlanMachines& machines);

}  // namespace shale::models
