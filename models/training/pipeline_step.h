#pragma once

#include <functional>
#include <map>
#include <span>
#include <vector>

#include "shale/comm/parallel/data/data_parallel.h"
#include "shale/comm/parallel/pipeline/runner.h"
#include "shale/models/training/step.h"
#include "shale/runtime/data/batch_uploads.h"
#include "shale/runtime/data/device_batch.h"

namespace shale::models {

// Forward and backward of the micro-batches of training steps, on one rank of a pipeline.
class PipelineStep : private comm::PipelineWork {
 public:
  // All arguments must outlive this. Collective over the ranks of the pipeline.
  PipelineStep(Context& context, StepPipeline model, comm::DataParallel& parallel, DType compute,
               StepObserver* observer);

  // Runs all micro-batches of a step. Returns the loss of each; 0 on ranks without losses. Calls
  // `before` before the first backward.
  std::vector<Tensor> run(const StepInput& input, std::function<void()> before);
  // Returns the loss of a micro-batch on ranks that have losses, and an undefined tensor on other
  // ranks.
  Tensor loss(const DeviceBatch& batch);

 private:
  struct MicroBatch {
    DeviceBatch batch;
    uint64_t first_sample = 0;  // index of the first sample within the step
  };

  Tensor forward(const comm::PieceRange& pieces, int micro, const Tensor& x) override;
  void before_backward(int chunk, bool last) override;
  void begins(const comm::Action& action) override;
  void ends(const comm::Action& action) override;
  const DeviceBatch& batch_of(int micro);

  Context& context_;
  StepPipeline model_;
  comm::DataParallel& parallel_;
  StepObserver* observer_;
  comm::Pipeline pipeline_;

  BatchUploads uploads_;
  const StepInput* input_ = nullptr;  // input of the current step; null: an evaluation
  std::function<void()> before_;      // called before the first backward; null: already called
  std::map<int, MicroBatch> micro_batches_;  // micro-batches with incomplete forward; key: index
  const DeviceBatch* evaluated_ = nullptr;
  int64_t step_ = 0;
  int rounds_ = 0;  // number of evaluations since the last step
};

}  // namespace shale::models
