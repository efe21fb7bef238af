#pragma once

#include <vector>

#include "shale/runtime/tensor/tensor.h"

namespace shale::models {

// What a training step leaves on the device for the host: the losses of its micro-batches, its
// tally (step_tally.h), and what kernels wrote to StepState. The copies follow the step's work on
// its stream, into pinned memory, so that the host can queue the next step before it looks at the
// results of this one.
class StepResults {
 public:
  StepResults(Context& context, int64_t max_micro_batches, int64_t tally_size = 0);
  ~StepResults();
  StepResults(const StepResults&) = delete;
  StepResults& operator=(const StepResults&) = delete;

  // At the end of a step. losses: one f32 scalar per micro-batch; tally: i32, of the size told, or
  // undefined. Results that were not waited for are lost.
  void queue(const std::vector<Tensor>& losses, const Tensor& tally = {});
  // Returns when the results of the last queue() are here. What the device's work threw is thrown.
  void wait();

  std::vector<double> losses() const;
  std::vector<int32_t> tally() const { return {tally_, tally_ + tally_size_}; }
  StepState state() const { return *state_; }

 private:
  void drop_event();

  Context& context_;
  int64_t max_micro_batches_, tally_size_;
  int64_t micro_batches_ = 0;  // of the last queue()
  size_t bytes_;
  StepState* state_;  // pinned; the losses follow, then the tally
  float* losses_;
  int32_t* tally_;
  void* event_ = nullptr;
  bool queued_ = false;
};

}  // namespace shale::models
