#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "shale/comm/parallel/data/data_parallel.h"
#include "shale/comm/parallel/parallel.h"
#include "shale/comm/parallel/pipeline/runner.h"
#include "shale/comm/parallel/pipeline/schedule.h"

namespace shale::comm {

// How a step is cut into micro-batches, and how its model is sharded.
struct ParallelStepOptions {
  DataParallelOptions data = {};
  int64_t micro_batches = 1;  // of a step, on all ranks of data parallelism together
  ScheduleKind schedule = ScheduleKind::k1F1B;
  int chunks = 1;       // of the model on a rank, for kInterleaved; kZbV has two
  int64_t samples = 1;  // of a micro-batch, at most: masks of dropout go by their numbers
  // Needed for a pipeline: what a piece makes is [samples, ModelPlan::tokens, width].
  int64_t width = 0;
};

// A forward pass of a micro-batch through some pieces of the model of one mesh rank.
struct ForwardPass {
  int rank = 0;             // of this process: the number of the model
  PieceRange pieces = {};   // all of them without a pipeline
  int64_t micro_batch = 0;  // of those of all ranks in this step
  Tensor x = {};            // what the piece before has made; undefined for the first piece
};

// Forward and backward of training steps over all axes of a Parallel, for a loop of one's own:
//
//   const auto models = parallel.build<Model>(plan, make);
//   ParallelStep step(parallel, models, {.data = {.stage = 3}, .micro_batches = 8});
//   optim::AdamW optimizer(step.data().shards(), {});
//   for each step:
//     optimizer.prepare(context, i, lr);
//     const double loss = step.run([&](const ForwardPass& pass) {
//       return models[pass.rank]->forward(pass.pieces, pass.x, batch of pass.micro_batch);
//     });
//     step.data().clip_grad_norm(1);
//     optimizer.step(); optimizer.zero_grad();
class ParallelStep {
 public:
  // pieces: of `model`, the first one of this process, which Parallel::cut() has cut. They say
  // their units, parameters and costs; their `run` is not called. All outlive this. Gives the
  // parameters memory. Collective. Throws ConfigError for micro-batches that the ranks of data
  // parallelism do not divide, for a pipeline without width, and what DataParallel and
  // make_stage_plan() throw.
  ParallelStep(Parallel& parallel, Module& model, std::span<const nn::Piece> pieces,
               const ParallelStepOptions& options);
  // Of models that have a method pieces().
  template <typename Model>
  ParallelStep(Parallel& parallel, const std::vector<std::unique_ptr<Model>>& models,
               const ParallelStepOptions& options)
      : ParallelStep(parallel, *models.front(), models.front()->pieces(), options) {}

  DataParallel& data() { return *data_; }

  // Calls `forward` for each micro-batch of this rank of data parallelism, each mesh rank of this
  // process and each run of pieces, and makes backward of what the last piece gives: an f32 scalar,
  // the loss of all tokens of the micro-batch, divided by what is counted in the whole step. The
  // gradients are complete when it returns. Returns the sum of all losses, the same bits on every
  // rank and for every number of them. Collective; the host waits for the losses.
  double run(const std::function<Tensor(const ForwardPass& pass)>& forward);

 private:
  std::vector<int> ranks_with_losses() const;

  Parallel& parallel_;
  const int64_t micro_batches_;  // of this rank
  const int64_t samples_;        // of each
  std::unique_ptr<DataParallel> data_;
  std::unique_ptr<Pipeline> pipeline_;  // of one rank, if the model has one stage
  int64_t steps_ = 0;
};

}  // namespace shale::comm
