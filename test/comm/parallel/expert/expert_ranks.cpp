// Compares expert parallelism with all experts on every rank.
#include <cmath>

#include "shale/comm/parallel/expert/expert_parallel.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/nn/moe.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"
#include "shale/test/support/ranks/harness.h"
#include "shale/test/support/ranks/pipeline_training.h"

namespace shale::test {
namespace {

models::LanguageModelConfig mixture(const std::string& family) {
  models::LanguageModelConfig config = six_layers(family);
  config.layers = 2;
  config.experts = 8;
  config.active_experts = 2;
  return config;
}

// A module with a single MoE layer.
struct Experts : Module {
  explicit Experts(int64_t experts)
      : moe(this, "moe",
            {.width = 8,
             .hidden = 12,
             .experts = experts,
             .init = Init::normal(0.5f),
             .down_init = Init::normal(0.5f)}) {}
  Tensor forward(const Tensor& x) {
    return run(x, [this](const Tensor& in) { return moe.forward(in); });
  }
  nn::MoE moe;
};

}  // namespace

TEST_CASE("rows go to the ranks of their experts and come back as they were",
          "[expert][many_ranks]") {
  const auto group = world().group();
  const int ranks = group->size(), rank = group->rank();
  Context context(small_context(1));
  Experts model(2 * ranks);
  const auto exchange = comm::expert_parallel(model, *group);
  // Rank r has (r + e) % 3 rows for expert e, and no rows for the last expert.
  std::vector<int32_t> offsets = {0};
  for (int e = 0; e < 2 * ranks; ++e) {
    offsets.push_back(offsets.back() + (e + 1 < 2 * ranks ? (rank + e) % 3 : 0));
  }
  // The last three rows belong to no expert.
  const int64_t count = offsets.back(), rows = count + 3;
  std::vector<float> values(size_t(rows * 2));
  for (int64_t r = 0; r < rows; ++r) {
    const auto expert = std::upper_bound(offsets.begin(), offsets.end(), r) - offsets.begin() - 1;
    values[size_t(2 * r)] = float(expert);
    values[size_t(2 * r + 1)] = float(100 * rank + r);
  }
  const Tensor x = leaf(context, {rows, 2}, values);
  const comm::ExpertRows plan =
      comm::expert_rows(*exchange, from_host<int32_t>(context, offsets, {2 * ranks + 1}), rows);
  const Tensor there = comm::dispatch(*exchange, plan, x);
  const std::vector<float> got = to_host<float>(there);
  const std::vector<int32_t> begins = to_host<int32_t>(plan.offsets);
  REQUIRE(begins.size() == 3);
  REQUIRE(there.size(0) == begins.back());
  for (int e = 0; e < 2; ++e) {
    for (int32_t r = begins[size_t(e)]; r < begins[size_t(e) + 1]; ++r) {
      CHECK(got[size_t(2 * r)] == float(2 * rank + e));
    }
  }
  const Tensor back = comm::collect(*exchange, plan, there);
  backward(back, full(context, back.shape(), DType::kF32, 1));
  const std::vector<float> again = to_host<float>(back), grad = to_host<float>(x.grad());
  for (int64_t i = 0; i < 2 * count; ++i) {
    CHECK(again[size_t(i)] == values[size_t(i)]);
    CHECK(grad[size_t(i)] == 1);
  }
}

TEST_CASE("mixtures whose experts are on several ranks train as those of one", "[expert]") {
  const auto all = world().group();
  const int ranks = all->size();
  if (ranks != 2 && ranks != 4) return;
  for (const std::string family : {"olmoe", "mixtral"}) {
    const models::LanguageModelConfig model = mixture(family);
    TrainOptions options{.micro_batch = 2, .steps = 3};
    for (const int stage : {0, 1, 2, 3}) {
      options.parallel.stage = stage;
      const PipelineRun plain{.micro_batches = 2};
      const Trained want = train_pipeline(*all, model, plain, options);
      REQUIRE(std::isfinite(want.losses.back()));
      for (int expert = 2; expert <= ranks; expert *= 2) {
        CAPTURE(family, stage, expert);
        PipelineRun run = plain;
        run.expert = expert;
        const Trained got = train_pipeline(*all, model, run, options);
        REQUIRE(got.parameters.size() == want.parameters.size());
        for (size_t i = 0; i < want.losses.size(); ++i) {
          // GEMMs with more rows round differently: by 2^-24 for each of several hundred additions.
          CHECK(std::abs(got.losses[i] - want.losses[i]) < 2e-5f * want.losses[i]);
          CHECK(std::abs(got.norms[i] - want.norms[i]) < 1e-4f * want.norms[i]);
        }
        // Parameters are compared in the order of the whole model, which includes all experts.
        double difference = 0, norm = 0;
        for (size_t i = 0; i < want.parameters.size(); ++i) {
          difference += std::pow(double(got.parameters[i]) - double(want.parameters[i]), 2);
          norm += std::pow(double(want.parameters[i]), 2);
        }
        CHECK(std::sqrt(difference / norm) < 1e-3);
      }
    }
  }
}

TEST_CASE("experts on several ranks go with recomputation and stages", "[expert]") {
  const auto all = world().group();
  if (all->size() != 4) return;
  const models::LanguageModelConfig model = mixture("olmoe");
  for (const int stage : {0, 1}) {
    TrainOptions options{.micro_batch = 2, .steps = 3, .recompute = Recompute::kFull};
    options.parallel.stage = stage;
    PipelineRun run{.ranks = 2, .micro_batches = 4};
    const Trained want = train_pipeline(*all, model, run, options);
    run.expert = 2;
    const Trained got = train_pipeline(*all, model, run, options);
    for (size_t i = 0; i < want.losses.size(); ++i) {
      CHECK(std::abs(got.losses[i] - want.losses[i]) < 2e-5f * want.losses[i]);
      CHECK(std::abs(got.norms[i] - want.norms[i]) < 1e-4f * want.norms[i]);
    }
  }
}

TEST_CASE("what has no experts for all ranks is refused with what fits", "[expert]") {
  const auto group = world().group();
  if (group->size() != 2) return;
  Experts three(3);
  CHECK_THROWS_WITH(comm::expert_parallel(three, *group),
                    Catch::Matchers::Contains("expected a number of parts that divides 3"));
  const auto dense = models::make_language_model(six_layers("llama"));
  CHECK_THROWS_WITH(comm::expert_parallel(*dense, *group),
                    Catch::Matchers::Contains("no MoE layers"));
}

}  // namespace shale::test
