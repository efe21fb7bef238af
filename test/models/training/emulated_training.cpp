// The GPU's kernels in whole training runs, on the emulator and under its race tracker.
#include <algorithm>
#include <cmath>

#include "shale/comm/parallel/data/data_parallel.h"
#include "shale/comm/world.h"
#include "shale/models/language/family.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/optim/clip.h"
#include "shale/runtime/optim/optimizer.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"

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

// Mean loss per token, step by step.
std::vector<double> losses_on(DeviceType device, DType dtype) {
  comm::World world(0, nullptr);
  const auto group = world.group();
  Context context({.device = {.type = device}, .threads = 2, .deterministic = true, .seed = 1});
  const auto model = models::make_language_model(two_layers(), {.dropout = 0.1f});
  comm::DataParallel parallel(*model, model->blocks(), context, *group,
                              {.compute = dtype, .seed = 5});
  optim::AdamW optimizer(parallel.shards(), {});
  std::vector<double> losses;
  for (int step = 0; step < kSteps; ++step) {
    optimizer.prepare(context, step, 3e-3f);
    context.update_step([](StepState& state) { state.grad_scale = 1.0f / (kBatch * kTokens); });
    // A few batches that come again, so that there is something to learn.
    const auto tokens = rand_int<int32_t>(kBatch * (kTokens + 1), uint32_t(step % 4), 0, 49);
    std::vector<int32_t> inputs, targets;
    for (int64_t i = 0; i < kBatch * kTokens; ++i) {
      const int64_t at = i / kTokens * (kTokens + 1) + i % kTokens;
      inputs.push_back(tokens[size_t(at)]);
      targets.push_back(tokens[size_t(at + 1)]);
    }
    const Tensor loss = model->loss(from_host<int32_t>(context, inputs, {kBatch, kTokens}),
                                    from_host<int32_t>(context, targets, {kBatch, kTokens}));
    parallel.begin_backward(/*reduce=*/true);
    backward(loss);
    parallel.finish_gradients();
    optim::clip_grad_norm(context, parallel.shards(), 1);
    optimizer.step();
    optimizer.zero_grad();
    losses.push_back(to_host<float>(loss).front() / double(kBatch * kTokens));
  }
  return losses;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

}  // namespace

TEST_CASE("training on the GPU's kernels gives the losses of the CPU's, in f32 and bf16") {
  const std::vector<double> f32 = losses_on(DeviceType::kCpu, DType::kF32);
  REQUIRE(f32.front() - f32.back() > 0.3);  // it learns
  CHECK(largest_difference(losses_on(DeviceType::kEmu, DType::kF32), f32) <= 1e-4);

  const std::vector<double> bf16 = losses_on(DeviceType::kCpu, DType::kBF16);
  CHECK(largest_difference(losses_on(DeviceType::kEmu, DType::kBF16), bf16) <=
        2 * largest_difference(bf16, f32));
}

}  // namespace shale::test
