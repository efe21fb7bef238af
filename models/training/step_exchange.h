#pragma once

#include <string>
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

// Whether a rank was asked to stop, before there is a step. Blocking.
bool anyone_stops(comm::ProcessGroup& group, bool mine);

// " (on rank 1, 3)": those whose own part of the loss is not finite; empty if there is none.
// Blocking.
std::string ranks_of_bad_losses(comm::ProcessGroup& group, const std::vector<double>& losses);

}  // namespace shale::models
