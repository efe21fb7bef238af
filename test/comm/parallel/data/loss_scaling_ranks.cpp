// Loss scaling over ranks: all skip the same steps, whoever's gradient overflows.
#include <algorithm>

#include "shale/comm/parallel/data/data_parallel.h"
#include "shale/kernels/loss.h"
#include "shale/models/language/family.h"
#include "shale/runtime/amp/grad_scaler.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/optim/optimizer.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"
#include "shale/test/support/ranks/harness.h"

namespace shale::test {
namespace {

constexpr int64_t kLength = 8, kSteps = 14;

struct Seen {
  std::vector<float> scales;       // after each step
  std::vector<float> skips;        // in all, after each step
  std::vector<float> parameters;   // after the last step
  std::vector<float> at_overflow;  // after the first step, which overflows
};

std::vector<float> all_parameters(const Module& model, comm::DataParallel& parallel) {
  std::vector<float> all;
  for (const Parameter* parameter : model.parameters()) {
    std::vector<float> values(static_cast<size_t>(parameter->numel()));
    parallel.read(*parameter, make_view(values.data(), parameter->shape));
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

// Trains in float16. Only `loud` has targets in the first steps, so that no other rank has a
// gradient of its own there.
Seen train(comm::ProcessGroup& group, int loud, int stage) {
  Context context(small_context(1));
  models::LanguageModelConfig config;
  config.layers = 2;
  config.width = 32;
  config.heads = 2;
  config.vocab = 61;
  config.padded_vocab = 64;
  config.context = kLength;
  const auto model = models::make_language_model(config);
  comm::DataParallel parallel(*model, model->blocks(), context, group,
                              {.compute = DType::kF16, .stage = stage, .seed = 3});
  optim::AdamW optimizer(parallel.shards(), {});
  amp::GradScaler scaler(context,
                         {.initial_scale = 0x1p22f, .growth_interval = 3, .hysteresis = 2});
  Seen seen;
  uint32_t skipped = 0;
  for (int64_t step = 0; step < kSteps; ++step) {
    optimizer.prepare(context, step, 1e-2f);
    context.update_step([&](StepState& state) { state.grad_scale = 1.0f / kLength; });
    const auto ids = rand_int<int32_t>(kLength, uint64_t(100 * step + group.rank()), 0, 60);
    std::vector<int32_t> targets(ids.begin() + 1, ids.end());
    targets.push_back(0);
    if (step < 4 && group.rank() != loud) {
      std::fill(targets.begin(), targets.end(), kernels::kIgnoreTarget);
    }
    parallel.begin_backward(true);
    backward(model->loss(from_host<int32_t>(context, ids, {1, kLength}),
                         from_host<int32_t>(context, targets, {1, kLength})));
    parallel.finish_gradients();
    parallel.clip_grad_norm(1);
    optimizer.set_updates(context, step - int64_t(skipped));
    optimizer.step();
    optimizer.zero_grad();
    scaler.update();
    const LossScale state = scaler.state();
    skipped = state.skipped_steps;
    seen.scales.push_back(state.value);
    seen.skips.push_back(float(skipped));
    if (step == 0) seen.at_overflow = all_parameters(*model, parallel);
  }
  seen.parameters = all_parameters(*model, parallel);
  return seen;
}

bool same_on_all(comm::ProcessGroup& group, const std::vector<float>& values) {
  const std::string_view bytes(reinterpret_cast<const char*>(values.data()),
                               values.size() * sizeof(float));
  for (const std::string& other : group.all_gather_bytes(bytes)) {
    if (other != bytes) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("an overflow on one rank makes all ranks skip the step, and training recovers") {
  const auto group = world().group();
  for (const int loud : {0, group->size() - 1}) {
    CAPTURE(loud);
    const Seen seen = train(*group, loud, /*stage=*/0);
    for (const int stage : {1, 2, 3}) {
      CAPTURE(stage);
      const Seen sharded = train(*group, loud, stage);
      CHECK(sharded.scales == seen.scales);
      CHECK(same_bits(sharded.parameters, seen.parameters));
    }
    // 2^22 / 8 is beyond float16's 65504: the first steps overflow, and the first is tolerated.
    CHECK(seen.skips[1] == 2);
    CHECK(seen.scales[0] == 0x1p22f);
    CHECK(seen.scales[1] == 0x1p21f);
    CHECK(kSteps - int64_t(seen.skips.back()) >= 6);                        // steps were done
    CHECK_FALSE(std::is_sorted(seen.scales.rbegin(), seen.scales.rend()));  // the scale grew again
    CHECK(seen.parameters != seen.at_overflow);
    for (const auto& values : {seen.scales, seen.skips, seen.at_overflow, seen.parameters}) {
      CHECK(same_on_all(*group, values));
    }
  }
}

}  // namespace shale::test
