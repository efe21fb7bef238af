// Tests the moving average of weights, and skipping steps by gradient norm. Neither depends on how
// ranks and memory tiers share the state.
#include <bit>
#include <cmath>
#include <cstring>

#include "shale/test/support/numbers.h"
#include "shale/test/support/ranks/harness.h"
#include "shale/test/support/ranks/tiny_run.h"

namespace shale::test {
namespace {

using State = std::map<std::string, std::string>;

constexpr std::string_view kAverage = "/ema";

std::vector<float> floats(const std::string& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

std::vector<RunLayout> layouts() {
  return {
      {{.stage = 1}},
      {{.stage = 2, .overlap = false}},
      {{.stage = 3}},
      {{.persist_below = 1000, .stage = 3}},
      {{.stage = 0}, {.optimizer = true}},
      {{.stage = 1}, {.optimizer = true, .share = 0.4}},
      {{.stage = 2}, {.optimizer = true, .gradients = true, .background = true}},
      {{.stage = 3}, {.optimizer = true, .gradients = true, .parameters = true}},
  };
}

}  // namespace

TEST_CASE("the average of the weights is what its formula says, after each step that counts") {
  const auto all = world().group();
  constexpr double kDecay = 0.9;
  for (const int stage : {0, 3}) {
    CAPTURE(stage);
    // The first gradients overflow, so the first steps do not change the average.
    TinyRun run({.shard = all.get()}, *all,
                {.parallel = {.compute = DType::kF16, .stage = stage},
                 .loss_scale = 0x1p24f,
                 .ema = kDecay});
    std::map<std::string, std::vector<double>> want;
    for (const auto& [name, bytes] : run.state()) {
      const std::vector<float> values = floats(bytes);
      want[name].assign(values.begin(), values.end());
    }
    int64_t skipped = 0;
    for (int step = 0; step < 8; ++step) {
      run.train(1);
      const bool counts = run.skipped_steps() == std::exchange(skipped, run.skipped_steps());
      const State state = run.state();
      for (const auto& [name, bytes] : state) {
        if (!name.ends_with(kAverage)) continue;
        std::vector<double>& average = want.at(name);
        const auto master = floats(state.at(name.substr(0, name.size() - kAverage.size())));
        const auto got = floats(bytes);
        for (size_t i = 0; counts && i < got.size(); ++i) {
          average[i] = kDecay * average[i] + (1 - kDecay) * double{master[i]};
        }
        // Each step updates the average with one subtraction and one FMA in f32, of numbers below
        // 2.
        CHECK(max_error(got, average) <= (step + 1) * 0x1p-23);
      }
    }
    CHECK(skipped > 0);
    CHECK(skipped < 6);
  }
}

TEST_CASE("the average has the same bits in every stage, with every optimizer and offload",
          "[gate]") {
  const auto all = world().group();
  if (!std::has_single_bit(unsigned(all->size()))) return;
  const auto trained = [&](RunLayout layout, OptimizerKind kind) {
    layout.ema = 0.99;
    layout.parallel.compute = DType::kBF16;
    layout.parallel.reproducible = true;
    TinyRun run({.shard = all.get()}, *all, layout, kind);
    return run.end_after(4);
  };
  for (const OptimizerKind kind :
       {OptimizerKind::kAdamW, OptimizerKind::kAdamW8bit, OptimizerKind::kMuon}) {
    const RunEnd want = trained({}, kind);
    CHECK(std::ranges::any_of(want.state,
                              [](const auto& part) { return part.first.ends_with(kAverage); }));
    for (const RunLayout& layout : layouts()) {
      CAPTURE(static_cast<int>(kind), layout.parallel.stage, layout.offload.optimizer);
      CHECK(trained(layout, kind) == want);
    }
  }
}

TEST_CASE("parameters are their average while it is evaluated, and themselves after it") {
  const auto all = world().group();
  for (RunLayout layout : layouts()) {
    for (const DType compute : {DType::kF32, DType::kBF16}) {
      CAPTURE(layout.parallel.stage, layout.offload.optimizer, dtype_name(compute));
      layout.ema = 0.5;
      layout.parallel.compute = compute;
      TinyRun run({.shard = all.get()}, *all, layout);
      TinyRun plain({.shard = all.get()}, *all, layout);
      CHECK(run.train(2) == plain.train(2));
      const State before = run.state();
      bool seen = false;
      run.step().with_average([&] {
        run.parallel().full_state([&](const Parameter& parameter, const View& values) {
          const std::string bytes(static_cast<const char*>(values.data),
                                  static_cast<size_t>(values.numel()) * sizeof(float));
          CHECK(bytes == before.at(parameter.full_name() + std::string(kAverage)));
          seen = true;
        });
      });
      CHECK(seen);
      CHECK(run.state() == before);
      CHECK(run.train(2) == plain.train(2));
    }
  }
}

TEST_CASE("a step with an outlying gradient changes nothing, on all ranks and tiers alike",
          "[gate]") {
  const auto all = world().group();
  if (!std::has_single_bit(unsigned(all->size()))) return;
  const optim::OutlierOptions options{.sigmas = 4, .window = 8};
  const auto trained = [&](RunLayout layout, OptimizerKind kind) {
    layout.skip_outliers = options;
    layout.ema = 0.9;
    layout.parallel.reproducible = true;
    TinyRun run({.shard = all.get()}, *all, layout, kind);
    run.train(6);
    CHECK(run.skipped_steps() == 0);
    State before = run.state();
    run.train(1, /*gradient_factor=*/1000);
    CHECK(run.skipped_steps() == 1);
    CHECK(run.step().outlier_steps() == 1);
    CHECK(run.state() == before);
    const optim::NormWindow norms = run.step().history().norms.value();
    CHECK(norms.count == 7);
    CHECK(norms.norms[6] > 100 * norms.norms[5]);
    const RunEnd end = run.end_after(3);
    CHECK(run.skipped_steps() == 1);
    return end;
  };
  for (const OptimizerKind kind : {OptimizerKind::kAdamW, OptimizerKind::kMuon}) {
    const RunEnd want = trained({}, kind);
    for (const RunLayout& layout : layouts()) {
      CAPTURE(static_cast<int>(kind), layout.parallel.stage, layout.offload.optimizer);
      CHECK(trained(layout, kind) == want);
    }
  }
}

}  // namespace shale::test
