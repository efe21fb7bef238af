#pragma once

#include <string>
#include <utility>
#include <vector>

#include "shale/comm/checkpoint/saver.h"
#include "shale/comm/process_group.h"

namespace shale::models {

// What ranks tell each other of saves.
struct SaveNews {
  bool is_time = false;  // minutes have passed since the last one; rank 0's clock counts
  comm::SaveProgress progress = {};
};

// What a rank tells the others at the end of a step.
struct StepNews {
  std::vector<double> losses;  // of its micro-batches; equally many on all ranks
  double busy_s = 0;           // of the step, without waiting for others
  bool stop = false;           // it was asked to stop
  SaveNews save = {};
};

// What all ranks know then: the same on all of them.
struct StepSummary {
  double loss_sum = 0;         // as comm::ordered_sum gives it
  std::vector<double> busy_s;  // by rank
  std::vector<int> ranks_to_stop;
  SaveNews save;  // the least that was finished, the last that failed
};

// The one exchange between hosts at the end of a step: a small all-gather that runs while the next
// step is queued, so that no host waits there for the slowest one. As every rank takes part in it,
// ranks that decide by the summary decide alike: they stop after the same step, or, if one of them
// is gone, not at all.
class StepExchange {
 public:
  // losses: the ranks whose losses count, in the order of their micro-batches; empty: all. The group
  // outlives this.
  explicit StepExchange(comm::ProcessGroup& group, std::vector<int> losses = {})
      : group_(group.host()), losses_(std::move(losses)) {}

  // Sends this rank's news on its way, and returns. What was sent before was taken. Collective.
  void start(const StepNews& mine);
  // Waits for the news of all ranks that was sent last. Throws what the all-gather threw.
  StepSummary take();

 private:
  comm::ProcessGroup& group_;
  const std::vector<int> losses_;
  std::vector<double> mine_, all_;
  comm::Work work_;  // goes before the memory that it uses
};

// Whether a rank was asked to stop, before there is a step. Blocking.
bool anyone_stops(comm::ProcessGroup& group, bool mine);

// " (on rank 1, 3)": those whose own part of the loss is not finite; empty if there is none.
// Blocking.
std::string ranks_of_bad_losses(comm::ProcessGroup& group, const std::vector<double>& losses);

}  // namespace shale::models
