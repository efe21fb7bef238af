#pragma once

#include <vector>

#include "shale/comm/process_group.h"

namespace shale::models {

// What a rank tells the others at the end of a step.
struct StepNews {
  std::vector<double> losses;  // of its micro-batches; equally many on all ranks
  double busy_s = 0;           // of the step, without waiting for others
  bool stop = false;           // it was asked to stop
};

// What all ranks know then: the same on all of them.
struct StepSummary {
  double loss_sum = 0;         // as comm::ordered_sum gives it
  std::vector<double> busy_s;  // by rank
  std::vector<int> ranks_to_stop;
};

// One small all-gather. Blocking. As every rank takes part in it, ranks that decide by the summary
// decide alike: they stop after the same step, or, if one of them is gone, not at all.
StepSummary exchange_step(comm::ProcessGroup& group, const StepNews& mine);

}  // namespace shale::models
