#pragma once

#include <vector>

#include "shale/runtime/tensor/tensor.h"

namespace shale::models {

// Results that a training step leaves on the device for the host: the losses of its micro-batches,
// its tally (step_tally.h), and what kernels wrote to StepState. At the end of the step, its stream
// copies them to pinned memory, so that the host can launch the next step before it reads them.
class StepResults {
 public:
  StepResults(Context& context, int64_t max_micro_batches, int64_t tally_size = 0);
  ~StepResults();
  StepResults(const StepResults&) = delete;
  StepResults& operator=(const StepResults&) = delete;

  // Call it at the end of a step. losses: one f32 scalar per micro-batch; tally: i32 [tally_size],
  // or undefined. Call wait() before the next queue(), which overwrites the results.
  void queue(const std::vector<Tensor>& losses, const Tensor& tally = {});
  // Waits for the results of the last queue(). Rethrows errors of the device's work.
  void wait();

  std::vector<double> losses() const;
  std::vector<int32_t> tally() const { return {tally_, tally_ + tally_size_}; }
  StepState state() const { return *state_; }

 private:
  void drop_event();

  Context& context_;
  int64_t max_micro_batches_, tally_size_;
  int64_t micro_batches_ = 0;  // number of losses in the last queue()
  size_t bytes_;
  StepState* state_;  // pinned memory of the state, then the losses, then the tally
  float* losses_;
  int32_t* tally_;
  void* event_ = nullptr;
  bool queued_ = false;
};

}  // namespace shale::models
