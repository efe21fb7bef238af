#include "shale/models/language/expert_tally.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "shale/comm/checkpoint/training_state.h"
#include "shale/comm/world.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"
#include "shale/test/support/training.h"

namespace shale::test {
namespace {

constexpr int64_t kLayers = 3, kExperts = 8, kActive = 2, kRows = 4, kLength = 6, kMicros = 2;
constexpr float kRate = 0.125f;

models::LanguageModelConfig small_mixture() {
  return {.family = "olmoe",
          .layers = kLayers,
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
  void done(const models::StepOutcome& outcome) override { all.push_back(outcome.tally); }
  std::vector<std::vector<int32_t>> all;
};

struct Run {
  std::vector<std::vector<int32_t>> tallies;  // token counts per expert, for each step
  std::vector<float> bias;                    // biases after the last step
  std::set<std::string> saved;                // names of training state tensors
};

Run train_mixture(Recompute level, const models::LanguageModelPolicy& policy, float rate,
                  int64_t steps) {
  comm::World world(0, nullptr);
  Context context(small_context());
  const auto group = world.group();
  const auto model = models::make_language_model(small_mixture(), policy);
  for (Module* block : model->blocks()) block->set_recompute(level);
  models::StepModel step_model = test::step_model(*model);
  auto tally =
      std::make_unique<models::ExpertTally>(std::vector<Module*>{model.get()}, context, rate);
  const Tensor bias = tally->bias();
  step_model.tally = std::move(tally);
  Tallies seen;
  Run run;
  {
    models::TrainStep step(context, {.shard = group.get()}, std::move(step_model),
                           {.micro_batches = kMicros}, make_adamw(), &seen);
    Batch batch;
    int64_t number = 0;
    for (int64_t i = 0; i < steps; ++i) {
      step.run({.step = i, .lr = 1e-2f, .weight = 48, .next_batch = [&]() -> const Batch& {
                  const auto tokens =
                      rand_int<float>(kRows * (kLength + 1), uint64_t(++number), 0, 31);
                  return batch = token_batch({tokens.begin(), tokens.end()}, kRows, kLength);
                }});
    }
    step.finish();
    for (const auto& part : comm::training_state(step.parallel(), step.optimizer())) {
      run.saved.insert(part.name);
    }
    if (bias.defined()) run.bias = to_host<float>(bias);
  }
  // The model's buffers no longer refer to memory of the context.
  for (const Buffer* buffer : model->buffers()) CHECK_FALSE(buffer->value.defined());
  run.tallies = seen.all;
  return run;
}

}  // namespace

TEST_CASE("a step counts the tokens of each expert once, recomputed or not", "[experts]") {
  const Run plain = train_mixture(Recompute::kNone, {}, 0, 3);
  REQUIRE(plain.tallies.size() == 3);
  for (const std::vector<int32_t>& tally : plain.tallies) {
    REQUIRE(tally.size() == size_t(kLayers * (kExperts + 1)));
    for (int64_t l = 0; l < kLayers; ++l) {
      const auto first = tally.begin() + l * (kExperts + 1);
      CHECK(std::accumulate(first, first + kExperts, 0) == kMicros * kRows * kLength * kActive);
      CHECK(first[kExperts] == 0);
    }
  }
  CHECK(train_mixture(Recompute::kFull, {}, 0, 3).tallies == plain.tallies);
  CHECK(train_mixture(Recompute::kSelective, {}, 0, 3).tallies == plain.tallies);
}

// An expert has a capacity of 0.5 * 2 * 24 / 8 = 3 tokens per micro-batch.
TEST_CASE("what finds no room at its expert is counted as dropped", "[experts]") {
  const Run run = train_mixture(Recompute::kNone, {.capacity_factor = 0.5}, 0, 1);
  for (int64_t l = 0; l < kLayers; ++l) {
    const auto first = run.tallies.front().begin() + l * (kExperts + 1);
    CHECK(std::accumulate(first, first + kExperts, 0) == kMicros * kRows * kLength * kActive);
    CHECK(first[kExperts] >= kMicros * (kRows * kLength * kActive - 3 * kExperts));
  }
}

// The expected biases follow algorithm 1 of arXiv:2408.15664, applied to the reported counts.
TEST_CASE("biases of routers follow the loads of all steps by their formula", "[experts]") {
  const Run run = train_mixture(Recompute::kFull, {.balance_loss = 0}, kRate, 5);
  std::vector<float> want(size_t(kLayers * kExperts));
  for (const std::vector<int32_t>& tally : run.tallies) {
    for (int64_t l = 0; l < kLayers; ++l) {
      const auto first = tally.begin() + l * (kExperts + 1);
      const double mean = std::accumulate(first, first + kExperts, 0.0) / kExperts;
      for (int64_t e = 0; e < kExperts; ++e) {
        want[size_t(l * kExperts + e)] += first[e] < mean ? kRate : first[e] > mean ? -kRate : 0;
      }
    }
  }
  CHECK(run.bias == want);  // the bits agree, because biases are multiples of a power of two
  CHECK(std::any_of(want.begin(), want.end(), [](float bias) { return bias != 0; }));
  CHECK(run.saved.contains("layers.2.mlp.router_bias"));
  // The biases change routing: without them, later steps choose other experts.
  const Run without = train_mixture(Recompute::kFull, {.balance_loss = 0}, 0, 5);
  CHECK(without.tallies.front() == run.tallies.front());
  CHECK(without.tallies.back() != run.tallies.back());
  CHECK_FALSE(without.saved.contains("layers.2.mlp.router_bias"));
}

TEST_CASE("metrics of experts are of all layers", "[experts]") {
  const ExpertMetrics metrics = models::expert_metrics({1, 9, 2, 4, 6, 3}, 2);
  CHECK(metrics.tokens_min == 1);
  CHECK(metrics.tokens_max == 9);
  CHECK(metrics.tokens_mean == 5);
  CHECK(metrics.dropped_share == 0.25);
}

}  // namespace shale::test
