#include "shale/bench/support/train_loop.h"

#include <algorithm>
#include <cmath>

#include "shale/bench/support/product_floor.h"
#include "shale/bench/support/step_report.h"
#include "shale/test/support/catch.h"

namespace shale::bench {
namespace {

TrainOptions small() {
  return {.model = "nano", .layers = 2, .seq_len = 32, .micro_batch = 2, .threads = 1};
}

}  // namespace

TEST_CASE("steps train, and their parts add up to the whole", "[bench]") {
  comm::World world(0, nullptr);
  TrainOptions options = small();
  options.global_batch = 4;
  KernelRecorder recorder;
  TrainLoop loop(options, world);
  const float first = loop.step(recorder).loss;
  CHECK(first == Approx(std::log(256.0)).epsilon(0.02));  // all tokens are equally likely at first
  recorder.reset();
  loop.reset_times();
  double seconds = 0;
  constexpr int kSteps = 3;
  for (int i = 0; i < kSteps; ++i) seconds += loop.step(recorder).seconds;

  const auto parts = step_rows(loop, recorder, kSteps);
  double sum = 0;
  for (const StepRow& part : parts) sum += part.seconds;
  CHECK(sum * kSteps <= seconds);
  double phases = 0;
  for (int i = 0; i < kPhases; ++i) phases += loop.phase_seconds(Phase(i));
  CHECK(sum * kSteps == Approx(phases));
  CHECK(std::is_sorted(parts.begin(), parts.end(),
                       [](const StepRow& a, const StepRow& b) { return a.seconds > b.seconds; }));
}

TEST_CASE("products of a step are counted as 6 FLOP per weight and token", "[bench]") {
  comm::World world(0, nullptr);
  TrainOptions options = small();
  KernelRecorder recorder;
  TrainLoop loop(options, world);
  recorder.keep_products(true);
  loop.step(recorder);
  // Weights of two blocks of width 128, and the output layer over 256 tokens.
  const double weights = 2 * 12 * 128 * 128 + 256 * 128;
  const double want = 6 * weights * double(loop.items_per_step());
  double recorded = 0;
  for (const auto& [name, total] : recorder.products()) recorded += total.cost.flops;
  CHECK(recorded == want);

  ProductFloor floor(recorder.product_calls());
  CHECK(floor.flops() == want);
  CHECK(floor.run() > 0);
  for (const ProductRow& part : product_totals(recorder, 1, &floor, 1)) {
    CAPTURE(part.name);
    CHECK(part.vendor_seconds > 0);
  }
}

TEST_CASE("memory is parameters, gradients, two states and what forward kept", "[bench]") {
  comm::World world(0, nullptr);
  TrainOptions options = small();
  options.dtype = GENERATE(DType::kF32, DType::kBF16);
  KernelRecorder recorder;
  TrainLoop loop(options, world);
  loop.step(recorder);
  const MemoryParts memory = loop.memory();
  const int64_t count = loop.parameter_count();
  const bool f32 = options.dtype == DType::kF32;
  // Flat buffers pad every parameter to a multiple of 1024 elements.
  CHECK(memory.gradients >= count * 4);
  CHECK(memory.parameters == memory.gradients / (f32 ? 1 : 2));
  CHECK(memory.gradients < count * 4 * 11 / 10);
  CHECK(memory.optimizer == memory.gradients * (f32 ? 2 : 3));
  CHECK(memory.saved_activations > 0);
  CHECK(memory.peak_reserved >= memory.peak_allocated);
  CHECK(memory.sum() == memory.parameters + memory.gradients + memory.optimizer +
                            memory.saved_activations + memory.workspace + memory.other);
}

TEST_CASE("graphs and dependent launches give the losses of plain steps", "[bench]") {
  comm::World world(0, nullptr);
  const auto losses = [&](bool cuda_graph, bool dependent_launch) {
    TrainOptions options = small();
    options.device = {.type = DeviceType::kEmu, .arch = 90};
    options.layers = 1;
    options.micro_batch = 1;
    options.cuda_graph = cuda_graph;
    options.dependent_launch = dependent_launch;
    KernelRecorder recorder;
    TrainLoop loop(options, world);
    std::vector<float> all;
    for (int step = 0; step < 3; ++step) all.push_back(loop.step(recorder).loss);
    return all;
  };
  const std::vector<float> plain = losses(false, false);
  CHECK(losses(true, false) == plain);
  CHECK(losses(false, true) == plain);
  CHECK(losses(true, true) == plain);
}

TEST_CASE("graphs need a device with streams", "[bench]") {
  comm::World world(0, nullptr);
  TrainOptions options = small();
  options.cuda_graph = true;
  CHECK_THROWS_AS(TrainLoop(options, world), ConfigError);
}

TEST_CASE("steps on images train, and their convolutions are in the floor", "[bench]") {
  comm::World world(0, nullptr);
  TrainOptions options{.model = "resnet18-small", .pixels = 16, .micro_batch = 2, .threads = 1};
  KernelRecorder recorder;
  TrainLoop loop(options, world);
  recorder.keep_products(true);
  const float first = loop.step(recorder).loss;
  recorder.keep_products(false);
  CHECK(first > 0);
  CHECK(loop.items_per_step() == 2);
  ProductFloor floor(recorder.product_calls());
  // The first convolution (3 x 3 pixels, 3 to 64 channels) computes no gradient of its input.
  const double missing = 2.0 * 2 * 16 * 16 * 64 * 3 * 3 * 3;
  CHECK(floor.flops() == loop.work().item_flops * 2 - missing);
  CHECK(floor.run() > 0);
  CHECK(floor.totals().at("conv 3x3/1 2x16x16x3 -> 64, weight gradient").calls == 1);
  CHECK(floor.totals().count("conv 3x3/1 2x16x16x3 -> 64, input gradient") == 0);

  // Images differ in each step, so that they cannot be memorized.
  const Batch one = loop.work().batch(0, 1), other = loop.work().batch(1, 1);
  CHECK(loop.work().batch(0, 2).count == 2);
  const auto pixels = [](const Batch& batch) { return batch.field("images").values<float>(); };
  CHECK(!std::ranges::equal(pixels(one), pixels(other)));
  CHECK(std::ranges::equal(pixels(one), pixels(loop.work().batch(0, 2)).first(16 * 16 * 3)));
}

TEST_CASE("steps of a diffusion transformer train, and their products are in the floor",
          "[bench]") {
  comm::World world(0, nullptr);
  TrainOptions options{.model = "dit-nano", .pixels = 16, .micro_batch = 4, .threads = 1};
  KernelRecorder recorder;
  TrainLoop loop(options, world);
  recorder.keep_products(true);
  // At first the output is 0, so that the loss is the variance of noise and image.
  CHECK(loop.step(recorder).loss == Approx(1 + 1.0 / 12).epsilon(0.2));
  recorder.keep_products(false);
  CHECK(loop.items_per_step() == 4);
  ProductFloor floor(recorder.product_calls());
  // `item_flops` also counts attention and input gradients, which are no recorded GEMMs.
  CHECK(floor.flops() < loop.work().item_flops * 4);
  CHECK(floor.flops() > loop.work().item_flops * 4 * 0.8);
}

TEST_CASE("with a LoRA rank, only adapters have gradients", "[bench]") {
  comm::World world(0, nullptr);
  TrainOptions options = small();
  KernelRecorder recorder;
  const int64_t whole = TrainLoop(options, world).parameter_count();
  options.lora_rank = 4;
  TrainLoop loop(options, world);
  // Elements of rank-4 adapters in two blocks: QKV, the output projection, and the two layers of
  // the feed-forward block.
  const int64_t adapters = 2 * 4 * ((128 + 384) + (128 + 128) + 2 * (128 + 512));
  CHECK(loop.parameter_count() == whole + adapters);
  const float first = loop.step(recorder).loss;
  CHECK(first == Approx(std::log(256.0)).epsilon(0.02));
  const MemoryParts memory = loop.memory();
  CHECK(memory.gradients >= adapters * 4);
  CHECK(memory.gradients < memory.parameters / 4);
}

TEST_CASE("an image model refuses options of language models", "[bench]") {
  comm::World world(0, nullptr);
  TrainOptions options{.model = "vit-nano", .layers = 2, .threads = 1};
  CHECK_THROWS_WITH(TrainLoop(options, world),
                    "--layers needs a language model, found the image model vit-nano");
}

}  // namespace shale::bench
