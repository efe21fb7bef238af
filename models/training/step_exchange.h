#pragma once

#include <string>
#include <utility>
#include <vector>

#include "shale/comm/checkpoint/saver.h"
#include "shale/comm/process_group.h"

namespace shale::models {

// State of saves that ranks exchange.
struct SaveNews {
  bool is_time = false;  // a save by minutes is due; only rank 0's clock counts
  comm::SaveProgress progress = {};
};

// Message of a rank at the end of a step.
struct StepNews {
  std::vector<double> losses;  // losses of its micro-batches; equal number on all ranks
  double busy_s = 0;           // time of the step without waits for other ranks
  bool stop = false;           // a stop was requested
  SaveNews save = {};
};

// Combined messages of all ranks, equal on all of them.
struct StepSummary {
  double loss_sum = 0;         // sum of all losses, computed by comm::ordered_sum
  std::vector<double> busy_s;  // StepNews::busy_s by rank
  std::vector<int> ranks_to_stop;
  SaveNews save;  // step that all ranks have saved, and the last failure
};

// The only exchange between hosts at the end of a step: a small all-gather that overlaps the launch
// of the next step, so that no host waits for the slowest one. As every rank takes part in it,
// decisions that follow from the summary are equal on all ranks: they stop after the same step, or,
// if one of them is gone, not at all.
class StepExchange {
 public:
  // losses: the ranks whose losses count, in the order of their micro-batches; empty: all. The
  // group must outlive this.
  explicit StepExchange(comm::ProcessGroup& group, std::vector<int> losses = {})
      : group_(group.host()), losses_(std::move(losses)) {}

  // Starts the all-gather of this rank's message and returns. The previous one must have been
  // taken. Collective.
  void start(const StepNews& mine);
  // Waits for the messages of the last start(). Rethrows errors of the all-gather.
  StepSummary take();

 private:
  comm::ProcessGroup& group_;
  const std::vector<int> losses_;
  std::vector<double> mine_, all_;
  comm::Work work_;  // destroyed before the memory that it uses
};

// Returns true if any rank was asked to stop, before the first step. Blocking.
bool anyone_stops(comm::ProcessGroup& group, bool mine);

// Returns " (on rank 1, 3)": the ranks whose own part of the loss is not finite; empty if there is
// none. Blocking.
std::string ranks_of_bad_losses(comm::ProcessGroup& group, const std::vector<double>& losses);

}  // namespace shale::models
