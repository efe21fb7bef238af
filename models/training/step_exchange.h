#pragma once

#include <string>
#include <utility>
#include <vector>

#include "shale/comm/checkpoint/saver.h"
#include "shale/comm/process_group.h"
#include "shale/runtime/tensor/context.h"

namespace shale::models {

// State of saves that ranks exchange.
struct SaveNews {
  bool is_time = false;  // `minutes` have passed since the last save; only rank 0's clock counts
  comm::SaveProgress progress = {};
};

// What a rank tells the other ranks at the end of a step.
struct StepNews {
  std::vector<double> losses;  // losses of the rank's micro-batches; all ranks have equally many
  double busy_s = 0;           // duration of the step without waits for other ranks
  double step_s = 0;           // duration of the step
  bool stop = false;           // this rank was asked to stop
  SaveNews save = {};
};

// What all ranks told at the end of a step, combined. Equal on all ranks.
struct StepSummary {
  double loss_sum = 0;         // sum of all losses, computed by comm::ordered_sum
  std::vector<double> busy_s;  // StepNews::busy_s of each rank
  double step_s = 0;           // maximum of StepNews::step_s
  std::vector<int> ranks_to_stop;
  SaveNews save;  // combination of StepNews::save of all ranks
};

// The only exchange between hosts at the end of a step: a small all-gather. It overlaps the launch
// of the next step, so that no host waits for the slowest one. All ranks get the same summary, so
// decisions that follow from it are equal on all ranks. All ranks stop after the same step; if a
// rank is lost, none stops.
class StepExchange {
 public:
  // losses: the ranks whose losses count, in the order of their micro-batches; empty: all ranks.
  // The group must outlive this.
  explicit StepExchange(comm::ProcessGroup& group, std::vector<int> losses = {})
      : group_(group.host()), losses_(std::move(losses)) {}

  // Starts the all-gather of this rank's message and returns. take() must have been called for the
  // previous one. Collective.
  void start(const StepNews& mine);
  // Waits for the all-gather of the last start(), and returns its summary. Rethrows errors of the
  // all-gather.
  StepSummary take();

 private:
  comm::ProcessGroup& group_;
  const std::vector<int> losses_;
  std::vector<double> mine_, all_;
  comm::Work work_;  // must be destroyed before the memory that it uses
};

// Lets all ranks stop before the same micro-batch of a step if one of them was asked to stop. About
// four times a second, all ranks vote before the same micro-batch. They read the result at the next
// vote, so that fast ranks do not wait for slow ones, except at the start of a step. Steps of less
// than 0.25 s need no votes, because StepExchange is fast enough.
class StopVotes {
 public:
  // Both arguments must outlive this.
  StopVotes(comm::ProcessGroup& group, Context& context)
      : group_(group.host()), context_(context) {}
  ~StopVotes();  // waits for the last vote
  StopVotes(const StopVotes&) = delete;
  StopVotes& operator=(const StopVotes&) = delete;

  // Sets the number of micro-batches between two votes, given the duration of a step, which must be
  // equal on all ranks.
  void set_step(double step_s, int64_t micro_batches);
  // Call it before each micro-batch. asked: this rank was asked to stop. Returns true on all ranks
  // if a rank was asked to stop before the last vote. Keeps the host at most two votes ahead of the
  // device. Collective.
  bool stops(int64_t micro, bool asked);

 private:
  bool take();
  void drop_event();

  comm::ProcessGroup& group_;
  Context& context_;
  int64_t every_ = 1;  // micro-batches between two votes; 0: no votes
  int64_t vote_ = 0;
  bool voting_ = false;
  // Event of the device after the micro-batches before the last vote; null: none.
  void* event_ = nullptr;
  comm::Work work_;  // must be destroyed before vote_, which it uses
};

// Returns the ranks whose own part of the loss is not finite, such as " (on rank 1, 3)"; empty if
// there are none. Blocking.
std::string ranks_of_bad_losses(comm::ProcessGroup& group, const std::vector<double>& losses);

}  // namespace shale::models
