// Runs GPU kernels in whole trainings, on the emulator with its race detector.
#include <algorithm>
#include <cmath>
#include <memory>

#include "shale/comm/world.h"
#include "shale/models/language/task.h"
#include "shale/runtime/kernel_check/check.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/ranks/devices.h"
#include "shale/test/support/temp_dir.h"
#include "shale/test/support/training.h"
#include "shale/test/support/wrong_kernels.h"

namespace shale::test {
namespace {

constexpr int kSteps = 30;
constexpr int64_t kBatch = 3, kTokens = 11;  // not multiples of any tile

models::LanguageModelConfig two_layers() {
  return {.layers = 2, .width = 24, .heads = 3, .vocab = 50, .padded_vocab = 64, .context = 16};
}

// Batches repeat, so that the model can learn them.
Batch batch_of(int64_t step) {
  return token_batch(rand_int<int32_t>(kBatch * (kTokens + 1), uint32_t(step % 4), 0, 49), kBatch,
                     kTokens);
}

// Mean loss per token of each step.
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

// Counts how often the host waits for a stream.
class CountedDevice final : public ChangedDevice {
 public:
  using ChangedDevice::ChangedDevice;
  void synchronize(void* stream) override {
    ++waits;
    ChangedDevice::synchronize(stream);
  }
  int waits = 0;
};

}  // namespace

TEST_CASE("an evaluation waits for the device once, and counts the tokens that it was over") {
  const TempDir dir;
  std::string text;
  for (int i = 0; i < 400; ++i) text += static_cast<char>('a' + i * i % 7);
  models::TrainConfig config;
  ConfigSpec spec("test", "");
  describe(spec, config);
  config.language.source.data = dir.write("text.txt", text);
  config.language.source.val_fraction = 0.5;
  config.language.layers = 1;
  config.language.width = 16;
  config.language.heads = 1;
  config.language.seq_len = 8;
  config.language.eval_samples = 11;
  config.run.micro_batch = 2;  // the last batch has padding
  resolve(config, 1);
  const auto evaluate = [&](Context& context) {
    models::LanguageTask task(config);
    comm::World world(0, nullptr);
    const auto group = world.group({}, context.backend());
    comm::DataParallel parallel(task.model(), task.units(), context, *group, {.seed = 1});
    const models::DataRanks data{.losses = {0}};
    return task.evaluate({.context = context,
                          .group = *group,
                          .data = data,
                          .parallel = parallel,
                          .loss = [&](const DeviceBatch& batch) { return task.loss(batch); }});
  };
  Context cpu({.threads = 2});
  const models::Evaluation want = evaluate(cpu);

  auto device = std::make_unique<CountedDevice>(emulator::Options{});
  CountedDevice& counted = *device;
  Context context({.threads = 2}, std::move(device));
  const int before = counted.waits;
  const models::Evaluation found = evaluate(context);
  CHECK(counted.waits - before == 1);
  CHECK(found.items == 11 * 8);
  CHECK(want.items == 11 * 8);
  CHECK(std::abs(found.loss - want.loss) <= 1e-4);
}

TEST_CASE("training on the GPU's kernels gives the losses of the CPU's, in f32 and bf16") {
  const std::vector<float> f32 = losses_on(DeviceType::kCpu, DType::kF32);
  REQUIRE(f32.front() - f32.back() > 0.3);  // the model learns
  CHECK(largest_difference(losses_on(DeviceType::kEmu, DType::kF32), f32) <= 1e-4);

  const std::vector<float> bf16 = losses_on(DeviceType::kCpu, DType::kBF16);
  CHECK(largest_difference(losses_on(DeviceType::kEmu, DType::kBF16), bf16) <=
        2 * largest_difference(bf16, f32));
}

// With this head size and these GEMM sizes, Hopper's own kernels run (compute capability 9.0).
TEST_CASE("training with wrong kernels gives the CPU's losses once a check has replaced them") {
  models::LanguageModelConfig model = two_layers();
  model.width = 64, model.heads = 1;
  const auto losses = [&](const Device& device) {
    return train({.model = model,
                  .context = {.device = device, .threads = 2, .deterministic = true, .seed = 1},
                  .compute = DType::kBF16,
                  .lr = 3e-3f,
                  .steps = 6,
                  .batch = batch_of})
        .losses;
  };
  const Device gpu = {.type = DeviceType::kEmu, .arch = 90};
  const std::vector<float> want = losses({});
  const WrongKernels wrong(WrongKernels::kHopperGemm | WrongKernels::kHopperAttention);
  const float before = largest_difference(losses(gpu), want);
  Context context({.device = gpu, .threads = 2});
  const auto report = kernel_check::check_kernels(
      context.backend(), context.exec(),
      {.limit_s = 600, .real_sizes = false, .slots = {"gemm", "attention_fwd"}});
  REQUIRE(report.left_out.size() == 2);
  CHECK(report.left_out[0].kernel == "gemm/hopper");
  CHECK(report.left_out[1].kernel == "attention_fwd/hopper");
  const float after = largest_difference(losses(gpu), want);
  CHECK(after < 0.02f);
  CHECK(before > 5 * after);
}

}  // namespace shale::test
