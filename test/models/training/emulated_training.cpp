// The GPU's kernels in whole training runs, on the emulator and under its race tracker.
#include <algorithm>
#include <cmath>

#include "shale/test/support/catch.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/training.h"

namespace shale::test {
namespace {

constexpr int kSteps = 30;
constexpr int64_t kBatch = 3, kTokens = 11;  // no multiple of any tile

models::LanguageModelConfig two_layers() {
  models::LanguageModelConfig config;
  config.layers = 2;
  config.width = 24;
  config.heads = 3;
  config.vocab = 50;
  config.padded_vocab = 64;
  config.context = 16;
  return config;
}

// A few batches that come again, so that there is something to learn.
Batch batch_of(int64_t step) {
  return token_batch(rand_int<int32_t>(kBatch * (kTokens + 1), uint32_t(step % 4), 0, 49), kBatch,
                     kTokens);
}

// Mean loss per token, step by step.
std::vector<float> losses_on(DeviceType device, DType dtype) {
  return train({.model = two_layers(),
                .dropout = 0.1f,
                .context =
                    {.device = {.type = device}, .threads = 2, .deterministic = true, .seed = 1},
                .compute = dtype,
                .lr = 3e-3f,
                .steps = kSteps,
                .batch = batch_of})
      .losses;
}

float largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  float largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

}  // namespace

TEST_CASE("training on the GPU's kernels gives the losses of the CPU's, in f32 and bf16") {
  const std::vector<float> f32 = losses_on(DeviceType::kCpu, DType::kF32);
  REQUIRE(f32.front() - f32.back() > 0.3);  // it learns
  CHECK(largest_difference(losses_on(DeviceType::kEmu, DType::kF32), f32) <= 1e-4);

  const std::vector<float> bf16 = losses_on(DeviceType::kCpu, DType::kBF16);
  CHECK(largest_difference(losses_on(DeviceType::kEmu, DType::kBF16), bf16) <=
        2 * largest_difference(bf16, f32));
}

}  // namespace shale::test
