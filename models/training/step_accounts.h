#pragma once

#include <chrono>
#include <utility>

#include "shale/comm/parallel/parallel.h"
#include "shale/comm/process_group.h"
#include "shale/models/training/report/metrics.h"
#include "shale/models/training/step.h"

namespace shale::models {

// Measures the steps of this rank: their duration, waits for data and for other ranks, and bytes
// sent. Each call returns the amounts since the previous call.
class StepAccounts {
 public:
  // Fills in step_ms, comm_exposed_ms, data_wait_ms, bubble_ms and `sent` of a completed step.
  void measure(const StepOutcome& outcome, const comm::ProcessGroup& all,
               const comm::Parallel& parallel, StepMetrics& metrics);

  // Returns the seconds since the last call without waits for other ranks. The first result is
  // meaningless.
  double busy_seconds(const comm::ProcessGroup& all);
  bool knows_busy_seconds() const { return waited_s_ >= 0; }

  void add_data_wait(double seconds) { data_wait_s_ += seconds; }
  double data_wait_seconds() const { return data_wait_s_; }  // total since the start, in seconds

  // Returns the loss scale of the last step; 1 without loss scaling.
  double loss_scale() const { return loss_scale_; }
  // Call it after a step, or after loading a checkpoint, with the loss scale of the next step.
  void next_loss_scale(double scale) { loss_scale_ = std::exchange(next_loss_scale_, scale); }

 private:
  using Clock = std::chrono::steady_clock;

  Clock::time_point finished_;   // end of the last step
  Clock::time_point told_at_;    // time of the last call of busy_seconds()
  double waited_s_ = -1;         // seconds of waiting for other ranks, until told_at_
  double exposed_s_ = 0;         // seconds of waiting for parameters and gradients, until finished_
  double bubble_s_ = 0;          // seconds of waiting for other pipeline stages, until finished_
  double data_wait_s_ = 0;       // seconds of waiting for batches, in total
  double told_data_wait_s_ = 0;  // seconds of data_wait_s_ that earlier metrics include
  SentBytes sent_;
  double loss_scale_ = 1, next_loss_scale_ = 1;
};

}  // namespace shale::models
