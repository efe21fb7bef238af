#include "shale/test/support/ranks/pipeline_training.h"

#include <algorithm>
#include <utility>

#include "shale/comm/parallel/data/full_state.h"
#include "shale/comm/parallel/parallel.h"
#include "shale/comm/sums/ordered_sum.h"
#include "shale/models/language/family.h"
#include "shale/models/language/sequence_batches.h"
#include "shale/test/support/op_check.h"

namespace shale::test {
namespace {

// Records the results of steps. A rank may get them in the middle of the next step, where it must
// not wait for other ranks.
struct Notes : models::StepObserver {
  void done(const models::StepOutcome& outcome) override {
    losses.push_back(outcome.losses);
    norms.push_back(outcome.state.grad_norm);
  }

  std::vector<std::vector<double>> losses;
  std::vector<float> norms;
};

}  // namespace

models::LanguageModelConfig six_layers(const std::string& family) {
  models::LanguageModelConfig config = tiny_model();
  config.family = family;
  config.layers = 6;
  config.width = 16;
  if (family != "gpt2") config.hidden = 24;
  config.tied = family == "gpt2";
  return config;
}

Trained train_pipeline(Context& context, comm::ProcessGroup& all,
                       const models::LanguageModelConfig& config, const PipelineRun& run,
                       const TrainOptions& options) {
  comm::Degrees degrees{.replica = run.replicas,
                        .tensor = std::max(run.tensor, options.tensor_shards),
                        .context = std::max(run.context, options.context_shards),
                        .expert = run.expert,
                        .pipeline = run.ranks};
  degrees.tensor_here = degrees.tensor / run.tensor;
  degrees.context_here = degrees.context / run.context;
  comm::Parallel parallel(all, context, degrees,
                          {.row_pieces = options.tensor_pieces,
                           .context_kind = options.context_kind,
                           .context_group = context_group(options.context_kind, run.context),
                           .joins_matrices = true});
  comm::Mesh& mesh = parallel.mesh();
  const int shards = mesh.size("shard"), data = run.replicas * shards;
  const int data_rank = mesh.coordinate("replica") * shards + mesh.coordinate("shard");
  models::LanguageModelPolicy policy = run.policy;
  policy.dropout = options.dropout;
  const comm::ModelPlan plan{.tokens = options.length, .key_heads = 2 * degrees.tensor};
  const auto hosted = parallel.build<models::LanguageModel>(plan, [&] {
    auto made = models::make_language_model(config, policy);
    for (Module* block : made->blocks()) block->set_recompute(options.recompute);
    return made;
  });
  models::LanguageModel* const model = hosted.front().get();

  models::StepModel step_of = step_model(*model);
  step_of.loss = [&](const DeviceBatch& batch) {
    const int rank = std::max(parallel.hosted().current(), 0);
    return hosted[size_t(rank)]->loss(parallel.own_rows(batch["inputs"]),
                                      parallel.own_rows(batch["targets"]));
  };
  int loss_rank = 0;
  if (run.ranks > 1 || run.chunks > 1) {
    models::StepPipeline pipeline{.group = &mesh.group("pipeline"), .pieces = model->pieces()};
    pipeline.plan = comm::make_stage_plan(
        pipeline.pieces,
        comm::make_schedule(run.kind, run.ranks, run.chunks, int(run.micro_batches)), run.split);
    const comm::SequenceParts parts = parallel.sequence_parts();
    const int64_t tokens =
        parallel.cuts_sequences() ? 2 * parts.chunk_tokens(options.length) : options.length;
    pipeline.boundary = {options.micro_batch, tokens / degrees.tensor, config.width};
    pipeline.slots = run.slots;
    pipeline.run = [&](const comm::PieceRange& some, const Tensor& x, const DeviceBatch& batch) {
      const int rank = std::max(parallel.hosted().current(), 0);
      const std::vector<nn::Piece> pieces = hosted[size_t(rank)]->pieces();
      return hosted[size_t(rank)]->run_pieces(
          std::span(pieces).subspan(size_t(some.first), size_t(some.end - some.first)), x,
          parallel.own_rows(batch["inputs"]), parallel.own_rows(batch["targets"]));
    };
    loss_rank = pipeline.plan.loss_rank();
    parallel.stage(pipeline.pieces, pipeline.plan, options.parallel.stage > 0);
    step_of.pipeline = std::move(pipeline);
  }
  const comm::ShardGroups& groups = parallel.groups();
  std::vector<int> losses;
  for (int rank = 0; rank < all.size(); ++rank) {
    const comm::MeshLayout& at = mesh.layout();
    const bool is_first = at.coordinate("tensor", rank) + at.coordinate("context", rank) == 0;
    if (is_first && at.coordinate("pipeline", rank) == loss_rank) losses.push_back(rank);
  }

  TrainOptions batches = options;
  batches.global_batch = options.micro_batch * run.micro_batches * data;
  const auto tokens = double(batches.global_batch * options.length);
  Notes notes;
  models::TrainStep step(context, groups, std::move(step_of),
                         step_options(options, run.micro_batches), options.optimizer, &notes);
  if (run.load) run.load(step.parallel());
  for (int64_t i = 0; i < options.steps; ++i) {
    Batch batch, own_batch;
    int64_t micro = 0;
    step.run({.step = i,
              .lr = run.lr,
              .weight = tokens,
              .first_position = i * batches.global_batch,
              .next_batch = [&]() -> const Batch& {
                if (micro == 1 && run.during_step) run.during_step(i);
                const int64_t leaf = micro++ * data + data_rank;
                const int64_t first = leaf * options.micro_batch;
                batch = run.batch ? run.batch(i, first) : micro_batch(batches, i, first);
                if (!parallel.cuts_sequences()) return batch;
                models::cut_batch(batch, parallel.sequence_parts(), own_batch);
                return own_batch;
              }});
  }
  step.finish_update();
  Trained result;
  result.norms = notes.norms;
  for (const std::vector<double>& mine : notes.losses) {
    result.losses.push_back(float(comm::ordered_sum(all.host(), mine, losses) / tokens));
  }
  comm::FullState state(step.parallel());
  for (const Parameter* parameter : model->parameters()) {
    const View values = state.read(*parameter);
    result.parameters.insert(result.parameters.end(), values.as<float>(),
                             values.as<float>() + values.numel());
  }
  result.skipped_steps = step.skipped_steps();
  result.memory = context.allocator().stats();
  return result;
}

Trained train_pipeline(comm::ProcessGroup& all, const models::LanguageModelConfig& model,
                       const PipelineRun& run, const TrainOptions& options) {
  Context context(small_context(1));
  return train_pipeline(context, all, model, run, options);
}

}  // namespace shale::test
