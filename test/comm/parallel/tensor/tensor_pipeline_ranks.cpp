// Tests tensor parallelism with pipelines and data parallelism. Layouts with the same number of
// leaves have the bits of one rank.
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"
#include "shale/test/support/ranks/harness.h"
#include "shale/test/support/ranks/pipeline_training.h"

namespace shale::test {
namespace {

using comm::ScheduleKind;
using enum comm::ScheduleKind;

constexpr int64_t kMicroBatches = 8;  // micro-batches per step, summed over all data-parallel ranks

models::LanguageModelConfig four_heads(const std::string& family) {
  models::LanguageModelConfig config = six_layers(family);
  config.heads = 4;
  if (family != "gpt2") config.kv_heads = 4;
  config.context = 16;
  return config;
}

// Options that do not depend on the number of ranks: four leaves, and dropout if the model family
// has dropout.
TrainOptions four_leaves(const models::LanguageModelConfig& model) {
  TrainOptions options{.micro_batch = 2, .steps = 3};
  options.length = 16;
  options.tensor_shards = 4;
  if (model.family == "gpt2") options.dropout = 0.1f;
  options.parallel.reproducible = true;
  return options;
}

struct Layout {
  int pipeline, tensor;
};

// Layouts with tensor and pipeline parallelism that this number of ranks can have.
std::vector<Layout> layouts(int ranks) {
  std::vector<Layout> all;
  for (const Layout& layout : {Layout{2, 1}, Layout{2, 2}, Layout{4, 2}, Layout{2, 4}}) {
    if (ranks % (layout.pipeline * layout.tensor) == 0) all.push_back(layout);
  }
  return all;
}

}  // namespace

TEST_CASE("a pipeline of layers that ranks share has the bits of one rank",
          "[gate][pipeline][tensor][many_ranks]") {
  const auto all = world().group();
  const int ranks = all->size();
  if (ranks != 2 && ranks != 4 && ranks != 8) return;
  for (const std::string family : {"gpt2", "llama"}) {
    const models::LanguageModelConfig model = four_heads(family);
    TrainOptions options = four_leaves(model);
    const Trained want = train_pipeline(alone(), model, {.micro_batches = kMicroBatches}, options);
    REQUIRE(std::isfinite(want.losses.back()));
    for (const auto [pipeline, tensor] : layouts(ranks)) {
      const int data = ranks / (pipeline * tensor);
      for (const auto& [kind, chunks, stage] :
           {std::tuple(k1F1B, 1, 0), std::tuple(kZbH1, 1, 1), std::tuple(kZbV, 2, 1)}) {
        CAPTURE(family, pipeline, tensor, schedule_name(kind), stage);
        if (pipeline * chunks > 8) continue;  // the model can be split into at most eight stages
        options.parallel.stage = stage;
        const PipelineRun run{.ranks = pipeline,
                              .tensor = tensor,
                              .kind = kind,
                              .chunks = chunks,
                              .micro_batches = kMicroBatches / data};
        CHECK(same(train_pipeline(*all, model, run, options), want));
      }
    }
  }
}

TEST_CASE("sequences that shards do not divide are padded, to the same bits on any ranks",
          "[gate][pipeline][tensor]") {
  const auto all = world().group();
  const int ranks = all->size();
  if (ranks != 1 && ranks != 2 && ranks != 4) return;
  for (const std::string family : {"gpt2", "llama"}) {
    const models::LanguageModelConfig model = four_heads(family);
    TrainOptions options = four_leaves(model);
    options.length = 13;  // 13 tokens are padded to 16
    const Trained want = train_pipeline(alone(), model, {.micro_batches = kMicroBatches}, options);
    for (const Layout& layout : {Layout{1, 1}, Layout{1, 2}, Layout{1, 4}, Layout{2, 2}}) {
      const int model_ranks = layout.pipeline * layout.tensor;
      if (ranks % model_ranks != 0) continue;
      for (const int stage : {0, layout.pipeline > 1 ? 1 : 3}) {
        CAPTURE(family, layout.pipeline, layout.tensor, stage);
        options.parallel.stage = stage;
        const PipelineRun run{.ranks = layout.pipeline,
                              .tensor = layout.tensor,
                              .micro_batches = kMicroBatches * model_ranks / ranks};
        CHECK(same(train_pipeline(*all, model, run, options), want));
      }
    }
    options.tensor_shards = 0;
    options.parallel = {};
    const Trained whole = train_pipeline(alone(), model, {.micro_batches = kMicroBatches}, options);
    for (size_t i = 0; i < want.losses.size(); ++i) {
      // The orders of additions differ: roundings of 2^-24 for each of several hundred additions.
      CHECK(std::abs(want.losses[i] - whole.losses[i]) < 2e-5f * whole.losses[i]);
      CHECK(std::abs(want.norms[i] - whole.norms[i]) < 1e-4f * whole.norms[i]);
    }
  }
}

TEST_CASE("low precision, recomputation and loss scaling change no bit of layers in stages",
          "[gate][pipeline][tensor]") {
  const auto all = world().group();
  if (all->size() != 4) return;
  const models::LanguageModelConfig model = four_heads("llama");
  for (const DType compute : {DType::kBF16, DType::kF16}) {
    TrainOptions options = four_leaves(model);
    options.parallel.compute = compute;
    options.loss_scale = 0x1p24f;
    const Trained want = train_pipeline(alone(), model, {.micro_batches = 4}, options);
    options.recompute = Recompute::kFull;
    options.parallel.stage = 1;
    CAPTURE(dtype_name(compute));
    const Trained got =
        train_pipeline(*all, model, {.ranks = 2, .tensor = 2, .micro_batches = 4}, options);
    CHECK(same(got, want));
    CHECK(got.skipped_steps == want.skipped_steps);
  }
}

}  // namespace shale::test
