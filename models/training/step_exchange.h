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
  bool is_time = false;  // a save by minutes is due; only rank 0's clock counts
  comm::SaveProgress progress = {};
};

// Message of a rank at the end of a step.
struct StepNews {
  std::vector<double> losses;  // losses of its micro-batches; equal number on all ranks
  double busy_s = 0;           // time of the step without waits for other ranks
  double step_s = 0;           // time of the step
  bool stop = false;           // a stop was requested
  SaveNews save = {};
};

// Combined messages of all ranks, equal on all of them.
struct StepSummary {
  double loss_sum = 0;         // sum of all losses, computed by comm::ordered_sum
  std::vector<double> busy_s;  // StepNews::busy_s by rank
  double step_s = 0;           // longest StepNews::step_s
  std::vector<int> ranks_to_stop;
  SaveNews save;  // step that all ranks have saved, and the last failure
};

// The only exchange between hosts at the end of a step: a small all-gather that overlaps the launch
// of the next step, so that no host waits for the slowest one. As every rank takes part in it,
// decisions that follow from the summary are equal on all ranks: all ranks stop after the same step
// or, if one of them is gone, none does.
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

// Lets all ranks agree, between the micro-batches of a step, whether one was asked to stop, so
// that all stop before the same micro-batch. All ranks vote before the same micro-batches, about
// four times a second, and read the result at the next vote, so that fast ranks do not wait for
// slow ones, except at the start of a step. Steps of less than 0.25 s need no votes: StepExchange
// answers soon enough.
class StopVotes {
 public:
  // Both arguments must outlive this.
  StopVotes(comm::ProcessGroup& group, Context& context)
      : group_(group.host()), context_(context) {}
  ~StopVotes();  // waits for the last vote
  StopVotes(const StopVotes&) = delete;
  StopVotes& operator=(const StopVotes&) = delete;

  // Sets the micro-batches between two votes, for steps of this length, equal on all ranks.
  void set_step(double step_s, int64_t micro_batches);
  // Call it before each micro-batch. asked: this rank was asked to stop. Returns true on all ranks
  // if one was. The host is then at most two votes ahead of the device. Collective.
  bool stops(int64_t micro, bool asked);

 private:
  bool take();
  void drop_event();

  comm::ProcessGroup& group_;
  Context& context_;
  int64_t every_ = 1;  // micro-batches; 0: no votes
  int64_t vote_ = 0;
  bool voting_ = false;
  void* event_ = nullptr;  // the device has reached the place of the last vote; null: none
  comm::Work work_;        // destroyed before vote_, which it uses
};

// Returns " (on rank 1, 3)": the ranks whose own part of the loss is not finite; empty if there is
// none. Blocking.
std::string ranks_of_bad_losses(comm::ProcessGroup& group, const std::vector<double>& losses);

}  // namespace shale::models
