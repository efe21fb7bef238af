#include "shale/comm/parallel/parallel_step.h"

#include <algorithm>

#include "shale/base/error.h"
#include "shale/comm/sums/ordered_sum.h"
#include "shale/runtime/tensor/autograd_state.h"

namespace shale::comm {
namespace {

int64_t of_rank(const Parallel& parallel, int64_t micro_batches) {
  const int ranks = parallel.data_ranks();
  if (micro_batches > 0 && micro_batches % ranks == 0) return micro_batches / ranks;
  throw ConfigError(cat("parallel step: ", micro_batches, " micro-batches on ", ranks,
                        " ranks of data parallelism, expected a multiple of ", ranks));
}

class MicroBatchWork : public PipelineWork {
 public:
  MicroBatchWork(Parallel& parallel, DataParallel& data, int64_t samples,
                 const std::function<Tensor(const ForwardPass& pass)>& run)
      : parallel_(parallel), data_(data), samples_(samples), run_(run) {}

  Tensor forward(const PieceRange& pieces, int micro, const Tensor& x) override {
    const int64_t micro_batch = int64_t{micro} * parallel_.data_ranks() + parallel_.data_rank();
    // Dropout masks depend on a sample's number in the whole step, whatever rank has the sample.
    parallel_.context().update_step(
        [&](StepState& step) { step.sample = static_cast<uint64_t>(micro_batch * samples_); });
    return run_({.rank = std::max(parallel_.hosted().current(), 0),
                 .pieces = pieces,
                 .micro_batch = micro_batch,
                 .x = x});
  }
  void before_backward(int chunk, bool last) override { data_.begin_backward(last, chunk); }

 private:
  Parallel& parallel_;
  DataParallel& data_;
  const int64_t samples_;  // samples per micro-batch
  const std::function<Tensor(const ForwardPass& pass)>& run_;
};

}  // namespace

ParallelStep::ParallelStep(Parallel& parallel, Module& model, std::span<const nn::Piece> pieces,
                           const ParallelStepOptions& options)
    : parallel_(parallel),
      micro_batches_(of_rank(parallel, options.micro_batches)),
      samples_(options.samples) {
  parallel.context().autograd().numbers_samples = true;
  const Degrees& degrees = parallel.degrees();
  const int stages = degrees.pipeline;
  const int chunks = options.schedule == ScheduleKind::kZbV ? 2 : options.chunks;
  const bool is_staged = stages > 1;
  if (is_staged && (options.width < 1 || parallel.own_tokens() < 1)) {
    throw ConfigError(cat("parallel step: pipeline ", stages, " with width ", options.width,
                          " and sequences of ", parallel.own_tokens(),
                          " tokens, expected both above 0: set ParallelStepOptions::width and "
                          "ModelPlan::tokens, the sizes of the activations that stages exchange"));
  }
  const StagePlan plan = make_stage_plan(
      pieces, make_schedule(is_staged ? options.schedule : ScheduleKind::k1F1B, stages,
                            is_staged ? chunks : 1, static_cast<int>(micro_batches_)));
  ProcessGroup& pipeline = parallel.mesh().group("pipeline");
  if (is_staged) {
    parallel.stage(pieces, plan, options.data.stage > 0);
    data_ = std::make_unique<DataParallel>(stage_units(model, pieces, plan, pipeline.rank()),
                                           parallel.context(), parallel.groups(), options.data);
  } else {
    std::vector<Module*> units;
    for (const nn::Piece& piece : pieces) {
      if (piece.unit != nullptr) units.push_back(piece.unit);
    }
    data_ = std::make_unique<DataParallel>(model, units, parallel.context(), parallel.groups(),
                                           options.data);
  }
  const int64_t tokens = parallel.own_tokens() / degrees.tensor;
  pipeline_ = std::make_unique<Pipeline>(
      parallel.context(), pipeline, plan,
      PipelineOptions{.boundary = {options.samples, tokens, options.width},
                      .dtype = options.data.compute,
                      .hosted = data_->hosted_ranks()});
}

// Ranks with losses to add. Tensor and context ranks have equal losses, so only one of them is
// included.
std::vector<int> ParallelStep::ranks_with_losses() const {
  const MeshLayout& mesh = parallel_.mesh().layout();
  std::vector<int> ranks;
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    const bool is_first = mesh.coordinate("tensor", rank) + mesh.coordinate("context", rank) == 0;
    if (is_first && mesh.coordinate("pipeline", rank) == pipeline_->plan().loss_rank()) {
      ranks.push_back(rank);
    }
  }
  return ranks;
}

double ParallelStep::run(const std::function<Tensor(const ForwardPass& pass)>& forward) {
  data_->shared().context();  // throws if the context has ended
  MicroBatchWork work(parallel_, *data_, samples_, forward);
  const std::vector<Tensor> losses = pipeline_->run(++steps_, work);
  data_->finish_gradients();
  // stay 0 on ranks without the last pipeline stage
  std::vector<double> values(static_cast<size_t>(micro_batches_));
  std::transform(losses.begin(), losses.end(), values.begin(),
                 [](const Tensor& loss) { return double{to_host<float>(loss).front()}; });
  return ordered_sum(parallel_.mesh().all().host(), values, ranks_with_losses());
}

}  // namespace shale::comm
