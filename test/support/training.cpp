#include "shale/test/support/training.h"

#include <algorithm>

#include "shale/comm/world.h"
#include "shale/runtime/data/tokens/batches.h"
#include "shale/runtime/optim/optimizer.h"

namespace shale::test {
namespace {

struct Losses : models::StepObserver {
  explicit Losses(double step_tokens) : tokens(step_tokens) {}
  void done(const models::StepOutcome& outcome) override {
    means.push_back(static_cast<float>(outcome.losses.front() / tokens));
  }
  double tokens;
  std::vector<float> means;
};

}  // namespace

models::StepModel step_model(models::LanguageModel& model) {
  return {model, model.blocks(), [&model](const DeviceBatch& batch) {
            return model.loss(batch["inputs"], batch["targets"]);
          }};
}

models::MakeOptimizer make_adamw() {
  return [](std::vector<OptimShard> shards) {
    return std::make_unique<optim::AdamW>(std::move(shards), optim::AdamWOptions{});
  };
}

Batch token_batch(const std::vector<int32_t>& stream, int64_t rows, int64_t length) {
  Batch batch{.count = rows};
  const TokenBatch tokens(batch, rows, length);
  for (int64_t row = 0; row < rows; ++row) {
    const auto first = stream.begin() + row * (length + 1);
    std::copy(first, first + length, tokens.inputs.begin() + row * length);
    std::copy(first + 1, first + length + 1, tokens.targets.begin() + row * length);
  }
  return batch;
}

ShortRunResult train(const ShortRun& run) {
  comm::World world(0, nullptr);
  Context context(run.context);
  const auto group = world.group({}, context.backend());
  const auto model = models::make_language_model(run.model, {.dropout = run.dropout});
  Batch batch = run.batch(0);
  Losses losses(double(batch.field("targets").shape.numel()));
  models::StepOptions options{.clip = 1};
  options.parallel.compute = run.compute;
  options.parallel.seed = 5;
  models::TrainStep step(context, {.shard = group.get()}, step_model(*model), options, make_adamw(),
                         &losses);
  for (int64_t i = 0; i < run.steps; ++i) {
    step.run(
        {.step = i, .lr = run.lr, .weight = losses.tokens, .next_batch = [&]() -> const Batch& {
           return batch = run.batch(i);
         }});
  }
  step.finish();
  ShortRunResult result{.losses = losses.means};
  step.parallel().full_state([&](const Parameter&, const View& value) {
    const auto* first = static_cast<const float*>(value.data);
    result.parameters.insert(result.parameters.end(), first, first + value.numel());
  });
  return result;
}

}  // namespace shale::test
