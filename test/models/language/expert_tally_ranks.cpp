// Tests that token counts of experts are summed over all ranks. The counts and the router biases
// must be equal on all ranks.
#include "shale/models/language/expert_tally.h"
#include "shale/models/training/task.h"

#include <numeric>

#include "shale/comm/mesh.h"
#include "shale/comm/parallel/pipeline/stage_plan.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"
#include "shale/test/support/ranks/harness.h"
#include "shale/test/support/training.h"

namespace shale::test {
namespace {

constexpr int64_t kExperts = 4, kActive = 2, kRows = 2, kLength = 5;

models::LanguageModelConfig small_mixture() {
  return {.family = "olmoe",
          .layers = 1,
          .width = 16,
          .heads = 2,
          .vocab = 32,
          .padded_vocab = 128,
          .context = kLength,
          .tied = false,
          .hidden = 8,
          .experts = kExperts,
          .active_experts = kActive};
}

struct Tallies : models::StepObserver {
  void done(const models::StepOutcome& outcome) override {
    all.insert(all.end(), outcome.tally.begin(), outcome.tally.end());
  }
  std::vector<int32_t> all;
};

}  // namespace

TEST_CASE("tokens of experts are added up over the ranks", "[experts]") {
  const auto all = world().group();
  Context context(small_context());
  const auto model = models::make_language_model(small_mixture());
  models::StepModel step_model = test::step_model(*model);
  auto tally =
      std::make_unique<models::ExpertTally>(std::vector<Module*>{model.get()}, context, 0.5f);
  const Tensor bias = tally->bias();
  step_model.tally = std::move(tally);
  Tallies seen;
  models::TrainStep step(context, {.shard = all.get()}, std::move(step_model), {}, make_adamw(),
                         &seen);
  Batch batch;
  for (int64_t i = 0; i < 3; ++i) {
    step.run({.step = i, .lr = 1e-2f, .weight = 10, .next_batch = [&]() -> const Batch& {
                const auto seed = uint64_t(1 + i * all->size() + all->rank());
                const auto tokens = rand_int<float>(kRows * (kLength + 1), seed, 0, 31);
                return batch = token_batch({tokens.begin(), tokens.end()}, kRows, kLength);
              }});
  }
  step.finish();
  REQUIRE(seen.all.size() == size_t(3 * (kExperts + 1)));
  const int sum = std::accumulate(seen.all.begin(), seen.all.end(), 0);
  CHECK(sum == 3 * all->size() * kRows * kLength * kActive);
  // If counts are equal on all ranks, the maximum over ranks is this rank's own value.
  std::vector<int32_t> largest = seen.all;
  all->all_reduce_max(make_view(largest.data(), {std::ssize(largest)}));
  CHECK(largest == seen.all);
  const std::vector<float> mine = to_host<float>(bias);
  std::vector<float> largest_bias = mine;
  all->all_reduce_max(make_view(largest_bias.data(), {kExperts}));
  CHECK(largest_bias == mine);
}

// Each pipeline stage counts the experts of its own layers.
TEST_CASE("tokens of experts are added up over the stages of a pipeline", "[experts][pipeline]") {
  const auto all = world().group();
  if (all->size() == 1) return;
  constexpr int64_t kMicroBatches = 2;
  const int64_t layers = all->size();
  Context context(small_context());
  models::LanguageModelConfig config = small_mixture();
  config.layers = layers;
  const auto model = models::make_language_model(config);
  comm::Mesh mesh(*all, comm::parallel_axes({.pipeline = all->size()}, all->size()));
  models::StepModel step_model = test::step_model(*model);
  step_model.tally =
      std::make_unique<models::ExpertTally>(std::vector<Module*>{model.get()}, context, 0.5f);
  models::StepPipeline pipeline{.group = &mesh.group("pipeline"), .pieces = model->pieces()};
  pipeline.plan = comm::make_stage_plan(
      pipeline.pieces,
      comm::make_schedule(comm::ScheduleKind::k1F1B, all->size(), 1, int(kMicroBatches)));
  pipeline.boundary = {kRows, kLength, config.width};
  pipeline.run = [&model](const comm::PieceRange& some, const Tensor& x, const DeviceBatch& batch) {
    const std::vector<nn::Piece> pieces = model->pieces();
    return model->run_pieces(models::pieces_in(pieces, some), x, batch["inputs"], batch["targets"]);
  };
  const comm::StageGroups stages(*pipeline.group, *pipeline.group, pipeline.pieces, pipeline.plan);
  step_model.pipeline = std::move(pipeline);
  Tallies seen;
  models::TrainStep step(context, {.shard = &mesh.group("shard"), .stages = &stages.stages()},
                         std::move(step_model), {.micro_batches = kMicroBatches}, make_adamw(),
                         &seen);
  Batch batch;
  uint64_t number = 0;
  step.run({.step = 0, .lr = 1e-2f, .weight = 20, .next_batch = [&]() -> const Batch& {
              const auto tokens = rand_int<float>(kRows * (kLength + 1), ++number, 0, 31);
              return batch = token_batch({tokens.begin(), tokens.end()}, kRows, kLength);
            }});
  step.finish();
  REQUIRE(seen.all.size() == size_t(layers * (kExperts + 1)));
  for (int64_t l = 0; l < layers; ++l) {
    const auto first = seen.all.begin() + l * (kExperts + 1);
    CHECK(std::accumulate(first, first + kExperts, 0) == kMicroBatches * kRows * kLength * kActive);
  }
}

}  // namespace shale::test
