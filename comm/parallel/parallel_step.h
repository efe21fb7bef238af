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

// Division of a step into micro-batches, and sharding of the model.
struct ParallelStepOptions {
  DataParallelOptions data = {};
  int64_t micro_batches = 1;  // micro-batches per step, over all data-parallel ranks
  ScheduleKind schedule = ScheduleKind::k1F1B;
  int chunks = 1;       // model chunks per rank, for kInterleaved; kZbV always has two
  // maximum number of samples per micro-batch; selects the sample numbers for dropout masks
  int64_t samples = 1;
  // Pipelines only: last dimension of a piece's output [samples, ModelPlan::tokens, width].
  int64_t width = 0;
};

// One forward call: of one micro-batch, through some pieces of one mesh rank's model.
struct ForwardPass {
  int rank = 0;             // index of the mesh rank, and of its model, in this process
  PieceRange pieces = {};   // all pieces if there is no pipeline
  int64_t micro_batch = 0;  // index of the micro-batch in this step, over all ranks
  Tensor x = {};            // output of the previous piece; undefined before the first piece
};

// Forward and backward of training steps over all axes of a Parallel, for custom training loops:
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
  // Allocates the parameters. pieces: those of `model`, which is the first model in this process,
  // after Parallel::cut(). Uses the units, parameters and costs of the pieces, but does not call
  // their `run`. All arguments must outlive this object. Throws ConfigError unless the number of
  // data-parallel ranks divides that of micro-batches, and for a pipeline without width; also
  // throws what DataParallel and make_stage_plan() throw. Collective.
  ParallelStep(Parallel& parallel, Module& model, std::span<const nn::Piece> pieces,
               const ParallelStepOptions& options);
  // Constructor for models that have a method pieces().
  template <typename Model>
  ParallelStep(Parallel& parallel, const std::vector<std::unique_ptr<Model>>& models,
               const ParallelStepOptions& options)
      : ParallelStep(parallel, *models.front(), models.front()->pieces(), options) {}

  DataParallel& data() { return *data_; }

  // Runs forward and backward. Calls `forward` for each micro-batch of this data-parallel rank,
  // each mesh rank in this process and each range of pieces. Runs backward from the last piece's
  // output, which must be an f32 scalar: the loss of the micro-batch's tokens, divided by the token
  // count of the whole step. Gradients are complete on return. Returns the sum of all losses, with
  // the same bits on every rank and for any number of ranks. Collective; the host waits for the
  // losses.
  double run(const std::function<Tensor(const ForwardPass& pass)>& forward);

 private:
  std::vector<int> ranks_with_losses() const;

  Parallel& parallel_;
  const int64_t micro_batches_;  // number of micro-batches of this data-parallel rank
  const int64_t samples_;        // samples per micro-batch
  std::unique_ptr<DataParallel> data_;
  std::unique_ptr<Pipeline> pipeline_;  // has one rank if the pipeline has one stage
  int64_t steps_ = 0;
};

}  // namespace shale::comm
