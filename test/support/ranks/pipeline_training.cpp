#include "shale/test/support/ranks/pipeline_training.h"

#include <utility>

#include "shale/comm/mesh.h"
#include "shale/comm/ordered_sum.h"
#include "shale/comm/parallel/context/context_parallel.h"
#include "shale/comm/parallel/data/full_state.h"
#include "shale/comm/parallel/expert/expert_parallel.h"
#include "shale/comm/parallel/pipeline/stage_plan.h"
#include "shale/comm/parallel/tensor/tensor_parallel.h"
#include "shale/models/language/family.h"
#include "shale/models/language/sequence_batches.h"
#include "shale/test/support/op_check.h"

namespace shale::test {
namespace {

// Notes what becomes of the steps. A rank may know of a step in the middle of the next, where it
// must not wait for others.
struct Notes : models::StepObserver {
  void done(const models::StepOutcome& outcome) override {
    losses.push_back(outcome.losses);
    norms.push_back(outcome.state.grad_norm);
  }

  std::vector<std::vector<double>> losses;
  std::vector<float> norms;
};

// What ranks share of a model: its layers, its sequences.
struct Cut {
  Cut(models::LanguageModel& model, comm::Mesh& mesh, const PipelineRun& run,
      const TrainOptions& options) {
    const auto in_layers = [&](const char* axis) -> comm::ProcessGroup& {
      comm::ProcessGroup& group = mesh.group(axis);
      groups.push_back(group.split(0, group.rank(), axis, comm::Lane::kModel));
      return *groups.back();
    };
    if (run.tensor > 1 || options.tensor_leaves > 0) {
      const models::LanguageModelConfig& config = model.config();
      layers = comm::tensor_parallel(model, models::model_family(config.family).tensor_plan(config),
                                     in_layers("tensor"), {.leaves = options.tensor_leaves,
                                      .pieces = options.tensor_pieces});
    }
    const int slices = layers != nullptr ? layers->leaves() : 1;
    if (run.context > 1 || options.context_leaves > 0 || options.length % slices != 0) {
      sequence = comm::context_parallel(model, in_layers("context"),
                                        {.tokens = options.length,
                                         .slices = slices,
                                         .leaves = options.context_leaves,
                                         .kind = options.context_kind,
                                         .group = context_group(options.context_kind, run.context),
                                         .key_heads = 2});
    }
  }
  // What goes from one piece to the next.
  Shape boundary(int64_t sequences, int64_t tokens, int64_t width) const {
    const int64_t slices = layers != nullptr ? layers->ranks() : 1;
    if (sequence == nullptr) return {sequences, tokens / slices, width};
    return {sequences * sequence->parts().count, 2 * sequence->chunk_tokens() / slices, width};
  }

  std::vector<std::unique_ptr<comm::ProcessGroup>> groups;
  std::unique_ptr<nn::Exchange> layers;
  std::unique_ptr<nn::CutSequence> sequence;
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
  const int of_model = run.ranks * run.context * run.tensor;
  comm::Mesh mesh(all, comm::parallel_axes({.replica = run.replicas,
                                            .pipeline = run.ranks,
                                            .shard = all.size() / of_model / run.replicas,
                                            .context = run.context,
                                            .tensor = run.tensor},
                                           all.size()));
  const int shards = mesh.size("shard"), data = run.replicas * shards;
  const int data_rank = mesh.coordinate("replica") * shards + mesh.coordinate("shard");
  models::LanguageModelPolicy policy = run.policy;
  policy.dropout = options.dropout;
  const auto model = models::make_language_model(config, policy);
  for (Module* block : model->blocks()) block->set_recompute(options.recompute);

  comm::ShardGroups groups{.shard = &mesh.flatten({"shard", "context"})};
  if (run.replicas > 1) groups.replicate = &mesh.group("replica");
  std::unique_ptr<comm::Mesh> experts;
  std::unique_ptr<nn::ExpertExchange> exchange;
  if (run.tensor > 1) groups.shard_and_tensor = &mesh.flatten({"shard", "context", "tensor"});
  if (run.expert > 1) {
    comm::ProcessGroup& stage = run.tensor > 1 ? *groups.shard_and_tensor : *groups.shard;
    experts = std::make_unique<comm::Mesh>(
        stage, std::vector<comm::MeshAxis>{{"same", 0}, {"expert", run.expert}});
    groups.experts = &experts->group("expert");
    groups.expert_shard = &experts->group("same");
    exchange = comm::expert_parallel(*model, *groups.experts);
  }
  const Cut cut(*model, mesh, run, options);
  if (cut.layers != nullptr) groups.tensor = &mesh.group("tensor");
  for (const auto& group : cut.groups) groups.layers.push_back(group.get());

  models::StepModel step_of = step_model(*model);
  std::unique_ptr<comm::StageGroups> stages;
  int loss_rank = 0;
  if (run.ranks > 1 || run.chunks > 1) {
    models::StepPipeline pipeline{.group = &mesh.group("pipeline"), .pieces = model->pieces()};
    pipeline.plan = comm::make_stage_plan(
        pipeline.pieces,
        comm::make_schedule(run.kind, run.ranks, run.chunks, int(run.micro_batches)), run.split);
    pipeline.boundary = cut.boundary(options.micro_batch, options.length, config.width);
    pipeline.slots = run.slots;
    pipeline.run = [&model](std::span<const nn::Piece> some, const Tensor& x,
                            const DeviceBatch& batch) {
      return model->run_pieces(some, x, batch["inputs"], batch["targets"]);
    };
    loss_rank = pipeline.plan.loss_rank();
    comm::ProcessGroup& whole = options.parallel.stage > 0 || run.expert > 1
                                    ? mesh.flatten({"pipeline", "shard", "context"})
                                    : *pipeline.group;
    stages =
        std::make_unique<comm::StageGroups>(*pipeline.group, whole, pipeline.pieces, pipeline.plan);
    groups.stages = &stages->stages();
    step_of.pipeline = std::move(pipeline);
  }
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
                if (cut.sequence == nullptr) return batch;
                models::cut_batch(batch, cut.sequence->parts(), own_batch);
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
    if (parameter->partition.share != LeafShare::kWhole && parameter->leaves.empty()) continue;
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
