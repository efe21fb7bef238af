// Compares MoE models on ranks of several axes at once with one rank that holds the whole model.
#include <cmath>

#include "shale/runtime/optim/adafactor.h"
#include "shale/runtime/optim/lamb.h"
#include "shale/runtime/optim/muon.h"
#include "shale/test/support/ranks/harness.h"
#include "shale/test/support/ranks/pipeline_training.h"

namespace shale::test {
namespace {

// Three layers, so that pipeline stages differ; four heads, for four tensor ranks.
models::LanguageModelConfig mixture(const std::string& family) {
  models::LanguageModelConfig config = six_layers(family);
  config.layers = 3;
  config.heads = config.kv_heads = 4;
  config.context = 16;
  config.experts = 8;
  config.active_experts = 2;
  return config;
}

// Number of ranks along each axis; all other ranks are data parallel.
struct Axes {
  int expert = 1, tensor = 1, context = 1, pipeline = 1;

  int model_ranks() const { return tensor * context * pipeline; }
  bool fit(int ranks) const { return ranks % model_ranks() == 0 && ranks / pipeline % expert == 0; }
};

// Every pair and triple of axes that includes experts, and context parallelism alone, which does
// not distribute experts. The numbers of experts are below, equal to and above the number of ranks
// that share a layer.
constexpr Axes kAxes[] = {
    {1, 1, 2, 1}, {1, 1, 4, 1}, {1, 2, 2, 1}, {1, 1, 2, 2}, {1, 2, 2, 2},  //
    {2, 2, 1, 1}, {4, 2, 1, 1}, {2, 4, 1, 1}, {4, 4, 1, 1}, {8, 2, 1, 1},  //
    {2, 1, 2, 1}, {4, 1, 2, 1}, {2, 1, 4, 1}, {8, 1, 2, 1},                //
    {2, 1, 1, 2}, {4, 1, 1, 2},                                            //
    {2, 2, 2, 1}, {4, 2, 2, 1}, {8, 2, 2, 1},                              //
    {2, 2, 1, 2}, {4, 2, 1, 2}, {2, 1, 2, 2}, {4, 1, 2, 2},                //
    {2, 2, 2, 2}, {4, 2, 2, 2},                                            //
};

PipelineRun run_of(const Axes& axes) {
  PipelineRun run{.ranks = axes.pipeline,
                  .tensor = axes.tensor,
                  .context = axes.context,
                  .expert = axes.expert,
                  .micro_batches = 2};
  // Makes the gradients of both auxiliary losses about as large as that of the main loss.
  run.policy.balance_loss = 0.2f;
  run.policy.router_z_loss = 0.05f;
  return run;
}

// Trains with the same micro-batches on one rank.
Trained on_one_rank(const models::LanguageModelConfig& model, const PipelineRun& run,
                    const TrainOptions& options, int ranks) {
  const int data = ranks / (run.ranks * run.tensor * run.context);
  PipelineRun one{.micro_batches = run.micro_batches * data, .lr = run.lr, .policy = run.policy};
  TrainOptions whole = options;
  whole.recompute = Recompute::kNone;
  whole.parallel.stage = 0;
  return train_pipeline(alone(), model, one, whole);
}

// Largest relative difference of losses and of norms, and relative distance of parameter vectors.
struct Distance {
  double losses = 0, norms = 0, parameters = 0;
};

Distance distance(const Trained& got, const Trained& want) {
  REQUIRE(got.losses.size() == want.losses.size());
  REQUIRE(got.parameters.size() == want.parameters.size());
  Distance all;
  for (size_t i = 0; i < want.losses.size(); ++i) {
    const auto relative = [](double a, double b) { return std::abs(a - b) / b; };
    REQUIRE(std::isfinite(got.losses[i]));
    all.losses = std::max(all.losses, relative(got.losses[i], want.losses[i]));
    all.norms = std::max(all.norms, relative(got.norms[i], want.norms[i]));
  }
  double difference = 0, norm = 0;
  for (size_t i = 0; i < want.parameters.size(); ++i) {
    difference += std::pow(double(got.parameters[i]) - double(want.parameters[i]), 2);
    norm += std::pow(double(want.parameters[i]), 2);
  }
  all.parameters = std::sqrt(difference / norm);
  return all;
}

TrainOptions small_steps() {
  return {.micro_batch = 2, .steps = 3, .length = 16};
}

template <typename Optimizer, typename Options>
models::MakeOptimizer make(const Options& options) {
  return [options](std::vector<OptimShard> shards) -> std::unique_ptr<optim::Optimizer> {
    return std::make_unique<Optimizer>(std::move(shards), options);
  };
}

}  // namespace

TEST_CASE("mixtures of experts on every pair and triple of axes train as one rank does",
          "[expert][many_ranks]") {
  const auto all = world().group();
  const int ranks = all->size();
  if (ranks != 2 && ranks != 4 && ranks != 8) return;
  for (const std::string family : {"olmoe", "mixtral"}) {
    const models::LanguageModelConfig model = mixture(family);
    for (const Axes& axes : kAxes) {
      // On eight ranks, tests only axes that need more than four ranks.
      if (!axes.fit(ranks) || (ranks == 8 && axes.fit(4))) continue;
      const PipelineRun run = run_of(axes);
      TrainOptions options = small_steps();
      const Trained want = on_one_rank(model, run, options, ranks);
      for (int stage = 0; stage <= (axes.pipeline > 1 ? 1 : 3); ++stage) {
        CAPTURE(family, axes.expert, axes.tensor, axes.context, axes.pipeline, stage);
        options.parallel.stage = stage;
        // With full recomputation (half of the cases), backward routes and sends the tokens a
        // second time.
        options.recompute = stage % 2 == 1 ? Recompute::kFull : Recompute::kNone;
        const Distance off = distance(train_pipeline(*all, model, run, options), want);
        // Sums over ranks, and GEMMs with other numbers of rows, round differently: several hundred
        // additions, 2^-24 each. AdamW moves parameters with tiny gradients by the gradient's sign.
        CHECK(off.losses < 2e-5);
        CHECK(off.norms < 1e-4);
        CHECK(off.parameters < 1e-3);
      }
    }
  }
}

TEST_CASE("replicas of mixtures whose layers are cut train as one rank does",
          "[expert][many_ranks]") {
  const auto all = world().group();
  const int ranks = all->size();
  if (ranks != 4 && ranks != 8) return;
  const models::LanguageModelConfig model = mixture("olmoe");
  // Experts are distributed over the ranks of tensor parallelism, over those of data parallelism,
  // or over both.
  for (const Axes& axes : {Axes{2, 1}, {2, 2}, {4, 2}, {4, 1}, {2, 2, 2}}) {
    PipelineRun run = run_of(axes);
    run.replicas = 2;
    if (!axes.fit(ranks / 2)) continue;
    TrainOptions options = small_steps();
    const Trained want = on_one_rank(model, run, options, ranks);
    for (const int stage : {1, 2, 3}) {
      CAPTURE(axes.expert, axes.tensor, axes.context, stage);
      options.parallel.stage = stage;
      const Distance off = distance(train_pipeline(*all, model, run, options), want);
      CHECK(off.losses < 2e-5);
      CHECK(off.norms < 1e-4);
      CHECK(off.parameters < 1e-3);
    }
  }
}

TEST_CASE("losses that balance experts, and what they count, are more than rounding", "[expert]") {
  const auto all = world().group();
  if (all->size() != 2) return;
  const models::LanguageModelConfig model = mixture("olmoe");
  const PipelineRun run = run_of({});
  PipelineRun other = run;
  other.policy.balance_loss = 0.19f;
  const Trained want = on_one_rank(model, run, small_steps(), 2);
  CHECK(distance(on_one_rank(model, other, small_steps(), 2), want).norms > 1e-4);
}

TEST_CASE("experts on several ranks are matrices of their own to Muon, and one parameter to others",
          "[expert]") {
  const auto all = world().group();
  const int ranks = all->size();
  if (ranks != 2 && ranks != 4) return;
  const models::LanguageModelConfig model = mixture("olmoe");
  const auto muon = make<optim::Muon>(optim::MuonOptions{});
  const auto adafactor = make<optim::Adafactor>(optim::AdafactorOptions{});
  const auto lamb = make<optim::Lamb>(optim::LambOptions{});
  for (const auto& [name, optimizer] :
       {std::pair("muon", muon), {"adafactor", adafactor}, {"lamb", lamb}}) {
    for (const Axes& axes : kAxes) {
      if (axes.expert == 1 || !axes.fit(ranks)) continue;
      const PipelineRun run = run_of(axes);
      TrainOptions options = small_steps();
      options.optimizer = optimizer;
      const Trained want = on_one_rank(model, run, options, ranks);
      for (int stage = 0; stage <= (axes.pipeline > 1 ? 1 : 3); ++stage) {
        CAPTURE(name, axes.expert, axes.tensor, axes.context, axes.pipeline, stage);
        options.parallel.stage = stage;
        const Distance off = distance(train_pipeline(*all, model, run, options), want);
        CHECK(off.losses < 1e-4);
        CHECK(off.norms < 1e-3);
        CHECK(off.parameters < 1e-3);
      }
    }
  }
}

}  // namespace shale::test
