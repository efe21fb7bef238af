#pragma once

#include <chrono>
#include <utility>

#include "shale/comm/parallel/parallel.h"
#include "shale/comm/process_group.h"
#include "shale/models/training/report/metrics.h"
#include "shale/models/training/step.h"

namespace shale::models {

// Measures this rank's steps: their time, its waits for data and other ranks, the bytes it sent.
// Each call returns what has been added since the call before.
class StepAccounts {
 public:
  // Fills in step_ms, comm_exposed_ms, data_wait_ms, bubble_ms and `sent` of a step that is done.
  void measure(const StepOutcome& outcome, const comm::ProcessGroup& all,
               const comm::Parallel& parallel, StepMetrics& metrics);

  // Seconds in which this rank did not wait for others. The first value means nothing.
  double busy_seconds(const comm::ProcessGroup& all);
  bool knows_busy_seconds() const { return waited_s_ >= 0; }

  void add_data_wait(double seconds) { data_wait_s_ += seconds; }
  double data_wait_seconds() const { return data_wait_s_; }  // in all

  // Loss scale of the last step; 1: no loss scaling.
  double loss_scale() const { return loss_scale_; }
  // Called after a step, or a checkpoint, with the loss scale of the next one.
  void next_loss_scale(double scale) { loss_scale_ = std::exchange(next_loss_scale_, scale); }

 private:
  using Clock = std::chrono::steady_clock;

  Clock::time_point finished_;   // end of the last step
  Clock::time_point told_at_;    // last call of busy_seconds()
  double waited_s_ = -1;         // for other ranks until then
  double exposed_s_ = 0;         // communication of parameters and gradients
  double bubble_s_ = 0;          // communication of activations between pipeline stages
  double data_wait_s_ = 0;       // for batches, in all
  double told_data_wait_s_ = 0;  // part of it that is in metrics already
  SentBytes sent_;
  double loss_scale_ = 1, next_loss_scale_ = 1;
};

}  // namespace shale::models
