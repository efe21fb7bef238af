#include "shale/test/support/ranks/training.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "shale/comm/parallel/data/sharded_parameter.h"
#include "shale/comm/sums/ordered_sum.h"
#include "shale/runtime/nn/fp8.h"
#include "shale/runtime/optim/optimizer.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"
#include "shale/test/support/ranks/harness.h"

namespace shale::test {

Batch micro_batch(const TrainOptions& options, int64_t step, int64_t first) {
  const std::vector<int32_t> all =
      rand_int<int32_t>(options.global_batch * (options.length + 1), uint64_t(step), 0, 60);
  const auto row = all.begin() + first * (options.length + 1);
  Batch batch = token_batch({row, row + options.micro_batch * (options.length + 1)},
                            options.micro_batch, options.length);
  batch.first_position = step * options.global_batch + first;
  return batch;
}

models::LanguageModelConfig tiny_model() {
  models::LanguageModelConfig config;
  config.layers = 3;
  config.width = 32;
  config.heads = 2;
  config.vocab = 61;
  config.padded_vocab = 64;
  config.context = kLength;
  return config;
}

std::vector<float> full_gradient(comm::DataParallel& parallel, comm::ProcessGroup& group,
                                 const Parameter& parameter) {
  const Tensor grad = comm::ShardedParameter(parallel, parameter).local_grad();
  std::vector<float> mine;
  if (!grad.defined()) return {};
  if (grad.dtype() == DType::kF32) {
    mine = to_host<float>(grad);
  } else {
    for (const bf16 x : to_host<bf16>(grad)) mine.push_back(to_f32(x));
  }
  if (group.size() == 1) return mine;
  std::vector<float> whole;
  const std::string_view bytes(reinterpret_cast<const char*>(mine.data()), mine.size() * 4);
  for (const std::string& piece : group.all_gather_bytes(bytes, "test gradient")) {
    // This rank's gradient is whole, so the other ranks' are equal to it.
    if (int64_t(whole.size()) == parameter.numel()) break;
    const size_t at = whole.size();
    whole.resize(at + piece.size() / 4);
    std::memcpy(whole.data() + at, piece.data(), piece.size());
  }
  return whole;
}

namespace {

// All ranks of a run, in the order of micro-batches.
struct Ranks {
  explicit Ranks(const comm::ShardGroups& groups)
      : count(groups.shard->size() * (groups.replicate != nullptr ? groups.replicate->size() : 1)),
        mine(groups.shard->rank() +
             (groups.replicate != nullptr ? groups.replicate->rank() * groups.shard->size() : 0)),
        everyone(groups.replicate != nullptr ? world().group() : nullptr),
        all(everyone != nullptr ? *everyone : groups.shard->host()) {}
  int count, mine;
  std::unique_ptr<comm::ProcessGroup> everyone;
  comm::ProcessGroup& all;
};

std::vector<float> all_gradients(const Module& model, comm::DataParallel& parallel,
                                 comm::ProcessGroup& group) {
  std::vector<float> all;
  for (const Parameter* parameter : model.parameters()) {
    const std::vector<float> gradient = full_gradient(parallel, group, *parameter);
    all.insert(all.end(), gradient.begin(), gradient.end());
  }
  return all;
}

// Records the results of steps.
struct Notes : models::StepObserver {
  Notes(comm::ProcessGroup& everyone, double step_tokens) : all(everyone), tokens(step_tokens) {}
  void ends(models::StepPhase phase) override {
    if (phase == models::StepPhase::kReduce && first_gradients) first_gradients();
  }
  void done(const models::StepOutcome& outcome) override {
    trained.losses.push_back(float(comm::ordered_sum(all, outcome.losses) / tokens));
    trained.norms.push_back(outcome.state.grad_norm);
  }

  comm::ProcessGroup& all;
  double tokens;
  std::function<void()> first_gradients;
  Trained trained;
};

}  // namespace

models::StepOptions step_options(const TrainOptions& options, int64_t micro_batches) {
  models::StepOptions step{.parallel = options.parallel,
                           .offload = options.offload,
                           .micro_batches = micro_batches,
                           .clip = options.clip,
                           .local_steps = options.local_steps};
  step.parallel.seed = 3;
  step.offload.activation.min_bytes = 0;
  if (options.loss_scale > 0) {
    step.loss_scale = amp::GradScalerOptions{.initial_scale = options.loss_scale};
  }
  return step;
}

Trained train(Context& context, const comm::ShardGroups& groups, const TrainOptions& options) {
  const Ranks ranks(groups);
  const models::LanguageModelConfig config = options.model.value_or(tiny_model());
  const auto model = models::make_language_model(config, {.dropout = options.dropout});
  for (Module* block : model->blocks()) {
    block->set_recompute(options.recompute);
    if (options.f32_norms) {
      block->children().front()->set_precision(
          {.compute = DType::kF32, .output = options.parallel.compute});
    }
  }
  if (options.fp8) nn::compute_in_fp8(model->blocks(), 0, *options.fp8);
  const int64_t micros = options.global_batch / (options.micro_batch * ranks.count);
  const auto tokens = double(options.global_batch * options.length);
  Notes notes(ranks.all, tokens);
  models::TrainStep step(context, groups, step_model(*model), step_options(options, micros),
                         options.optimizer, &notes);
  if (options.keep_gradients) {
    notes.first_gradients = [&] {
      notes.trained.gradients = all_gradients(*model, step.parallel(), groups.shard->host());
      notes.first_gradients = nullptr;
    };
  }
  for (int64_t i = 0; i < options.steps; ++i) {
    Batch batch;
    int64_t micro = 0;
    step.run({.step = i,
              .lr = 1e-2f,
              .weight = tokens,
              .first_position = i * options.global_batch,
              .next_batch = [&]() -> const Batch& {
                const int64_t leaf = micro++ * ranks.count + ranks.mine;
                return batch = micro_batch(options, i, leaf * options.micro_batch);
              }});
  }
  step.finish_update();
  Trained& result = notes.trained;
  step.parallel().full_state([&](const Parameter&, const View& values) {
    const auto* begin = values.as<float>();
    result.parameters.insert(result.parameters.end(), begin, begin + values.numel());
  });
  result.skipped_steps = step.skipped_steps();
  result.memory = context.allocator().stats();
  if (Context* host = step.host_context()) result.host_memory = host->allocator().stats();
  return std::move(result);
}

Trained train(const comm::ShardGroups& groups, const TrainOptions& options) {
  Context context(small_context(1));
  return train(context, groups, options);
}

Trained train(comm::ProcessGroup& group, const TrainOptions& options) {
  return train(comm::ShardGroups{.shard = &group}, options);
}

bool same(const Trained& a, const Trained& b) {
  return same_bits(a.losses, b.losses) && same_bits(a.norms, b.norms) &&
         same_bits(a.parameters, b.parameters);
}

comm::ProcessGroup& alone() {
  static const auto everyone = world().group();
  static const auto mine = everyone->split(everyone->rank(), 0, "alone");
  return *mine;
}

}  // namespace shale::test
