// Tests loss scaling: all ranks skip the same steps, whichever rank's gradient overflows.
#include <algorithm>

#include "shale/kernels/loss.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"
#include "shale/test/support/ranks/harness.h"
#include "shale/test/support/training.h"

namespace shale::test {
namespace {

constexpr int64_t kSequence = 8, kSteps = 14;

struct Seen {
  std::vector<float> scales;       // scale after each step
  std::vector<float> skips;        // total of skipped steps after each step
  std::vector<float> parameters;   // parameters after the last step
  std::vector<float> at_overflow;  // parameters after the first step, which overflows
};

models::LanguageModelConfig small() {
  models::LanguageModelConfig config;
  config.layers = 2;
  config.width = 32;
  config.heads = 2;
  config.vocab = 61;
  config.padded_vocab = 64;
  config.context = kSequence;
  return config;
}

// In the first four steps only rank `loud` has targets, so only its gradient is not zero.
Batch batch_of(int rank, int loud, int64_t step) {
  Batch batch = token_batch(rand_int<int32_t>(kSequence + 1, uint64_t(100 * step + rank), 0, 60), 1,
                            kSequence);
  if (step < 4 && rank != loud) {
    const auto targets = batch.set("targets", DType::kI32, {1, kSequence}).values<int32_t>();
    std::fill(targets.begin(), targets.end(), kernels::kIgnoreTarget);
  }
  return batch;
}

// Trains the model in f16.
Seen train(comm::ProcessGroup& group, int loud, int stage) {
  Context context(small_context(1));
  const auto model = models::make_language_model(small());
  models::StepOptions options{.clip = 1};
  options.parallel = {.compute = DType::kF16, .stage = stage, .seed = 3};
  options.loss_scale = {.initial_scale = 0x1p22f, .growth_interval = 3, .hysteresis = 2};
  models::TrainStep training(context, {.shard = &group}, step_model(*model), options, make_adamw());
  const auto all_parameters = [&] {
    std::vector<float> all;
    training.parallel().full_state([&](const Parameter&, const View& value) {
      const auto* first = static_cast<const float*>(value.data);
      all.insert(all.end(), first, first + value.numel());
    });
    return all;
  };
  Seen seen;
  for (int64_t step = 0; step < kSteps; ++step) {
    const Batch batch = batch_of(group.rank(), loud, step);
    training.run({.step = step,
                  .lr = 1e-2f,
                  .weight = double(kSequence),
                  .next_batch = [&]() -> const Batch& { return batch; }});
    training.finish();
    const std::optional<LossScale> scale = training.history().loss_scale;
    seen.scales.push_back(scale->value);
    seen.skips.push_back(float(scale->skipped_steps));
    if (step == 0) seen.at_overflow = all_parameters();
  }
  seen.parameters = all_parameters();
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
    // 2^22 / 8 exceeds f16's maximum of 65504, so the first steps overflow. The scale falls only
    // after the second overflow.
    CHECK(seen.skips[1] == 2);
    CHECK(seen.scales[0] == 0x1p22f);
    CHECK(seen.scales[1] == 0x1p21f);
    CHECK(kSteps - int64_t(seen.skips.back()) >= 6);  // some steps were not skipped
    CHECK_FALSE(std::is_sorted(seen.scales.rbegin(), seen.scales.rend()));  // the scale also grew
    CHECK(seen.parameters != seen.at_overflow);
    for (const auto& values : {seen.scales, seen.skips, seen.at_overflow, seen.parameters}) {
      CHECK(same_on_all(*group, values));
    }
  }
}

}  // namespace shale::test
