// Tests gathering the weights of fp8 GEMMs in the quantized form that the GEMMs read.
#include <cmath>

#include "shale/base/trace.h"
#include "shale/comm/mesh.h"
#include "shale/comm/traffic.h"
#include "shale/kernels/block_codes.h"
#include "shale/runtime/nn/fp8.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"
#include "shale/test/support/ranks/harness.h"
#include "shale/test/support/ranks/replicas.h"
#include "shale/test/support/ranks/tiny_run.h"
#include "shale/test/support/ranks/training.h"

namespace shale::test {
namespace {

using comm::ReshardAfterForward;

TrainOptions fp8_options(Operands operands) {
  TrainOptions options{.keep_gradients = false, .fp8 = operands};
  options.parallel = {.compute = DType::kBF16, .stage = 3};
  return options;
}

// The matrices have several scale blocks in each direction. The edge of a matrix cuts some blocks,
// and the end of a rank's shard cuts others.
models::LanguageModelConfig wide_model() {
  models::LanguageModelConfig config = tiny_model();
  config.layers = 2;
  config.width = 192;
  return config;
}

Trained with_fp8_gathers(const comm::ShardGroups& groups, TrainOptions options) {
  options.parallel.gather_fp8 = true;
  return train(groups, options);
}

}  // namespace

TEST_CASE("weights gathered in fp8 train with the bits of those gathered in bf16") {
  const auto all = world().group();
  if (world().size() == 1) return;
  const comm::ShardGroups groups{.shard = all.get()};
  for (const Operands operands : {Operands::kFp8, Operands::kFp8Tensor}) {
    CAPTURE(int(operands));
    TrainOptions options = fp8_options(operands);
    const Trained want = train(groups, options);
    CHECK(std::isfinite(want.losses.back()));
    CHECK(same(with_fp8_gathers(groups, options), want));
    options.recompute = Recompute::kFull;
    options.parallel.prefetch = 3;
    CHECK(same(with_fp8_gathers(groups, options), want));
    options.parallel.reshard_after_forward = ReshardAfterForward::kNo;
    options.parallel.overlap = false;
    CHECK(same(with_fp8_gathers(groups, options), want));
    options.parallel.persist_below = 2048;  // keeps the matrix [32, 32] whole
    CHECK(same(with_fp8_gathers(groups, options), want));

    TrainOptions wide = fp8_options(operands);
    wide.model = wide_model();
    wide.steps = 2;
    CHECK(same(with_fp8_gathers(groups, wide), train(groups, wide)));
  }
}

TEST_CASE("weights gathered in fp8 go with reproducible sums, skipped steps and other codes") {
  const auto all = world().group();
  if (world().size() == 1) return;
  const comm::ShardGroups groups{.shard = all.get()};
  const auto losses_around_skipped = [&](bool gathers_fp8) {
    RunLayout layout{.parallel = {.compute = DType::kBF16, .stage = 3, .gather_fp8 = gathers_fp8},
                     .loss_scale = 1024,
                     .fp8 = Operands::kFp8};
    TinyRun run(groups, *all, layout);
    run.train(1);
    run.train(1, INFINITY);  // this step is skipped, so the master weights do not change
    CHECK(run.skipped_steps() == 1);
    return run.train(2);
  };
  CHECK(losses_around_skipped(true) == losses_around_skipped(false));
  TrainOptions coded = fp8_options(Operands::kFp8);
  coded.parallel.reduce_code = kernels::BlockCode::kInt8;
  CHECK(same(with_fp8_gathers(groups, coded), train(groups, coded)));
  if (world().size() != 2) return;
  TrainOptions reproducible = fp8_options(Operands::kFp8);
  reproducible.global_batch = 8;
  reproducible.parallel.reproducible = true;
  CHECK(same(with_fp8_gathers(groups, reproducible), train(groups, reproducible)));
}

TEST_CASE("backward gathers inside a small group what forward gathered in fp8") {
  const auto all = world().group();
  if (world().size() != 4) return;
  comm::Mesh mesh(*all, {{"node", 2}, {"rank", 2}});
  const comm::ShardGroups groups{.shard = all.get(), .reshard = &mesh.group("rank")};
  TrainOptions options = fp8_options(Operands::kFp8);
  options.parallel.reshard_after_forward = ReshardAfterForward::kSmallGroup;
  CHECK(same(with_fp8_gathers(groups, options), train(groups, options)));
  const Replicas replicas(*all, 2);
  const TrainOptions plain = fp8_options(Operands::kFp8);
  CHECK(same(with_fp8_gathers(replicas.groups, plain), train(replicas.groups, plain)));
}

TEST_CASE("a gather in fp8 sends a byte of each element of a weight, and each step its maxima") {
  const auto all = world().group();
  if (world().size() == 1) return;
  const double n = world().size(), others = (n - 1) / n;
  const auto sent_in_step = [&](bool gathers_fp8, double& coded, double& maxima) {
    RunLayout layout{.parallel = {.compute = DType::kBF16, .stage = 3, .gather_fp8 = gathers_fp8},
                     .fp8 = Operands::kFp8};
    TinyRun run({.shard = all.get()}, *all, layout);
    run.train(1);
    coded = maxima = 0;
    for (const auto& unit : run.parallel().units()) {
      for (const auto& buffer : unit->buffers()) {
        const auto& entries = buffer->layout().entries;
        if (nn::weight_operands(*entries.front().parameter) == Operands::kPlain) continue;
        REQUIRE_FALSE(buffer->layout().owner);
        coded += double(buffer->layout().numel);
        // One scale block per matrix, as matrices are smaller than 128 x 128.
        maxima += double(entries.size());
      }
    }
    all->reset_traffic();
    run.train(1);
    run.step().finish_update();
    return double(all->traffic().totals(comm::Traffic::kParameters).sent_bytes);
  };
  double coded = 0, maxima = 0, unused = 0;
  const double fp8 = sent_in_step(true, coded, maxima);
  REQUIRE(coded > 0);
  // A micro-batch needs two gathers; an all-reduce sends twice as much as a gather.
  const double micro_batches = 12 / n;
  const double bf16 = sent_in_step(false, unused, unused);
  CHECK(bf16 - fp8 == Approx(others * (2 * micro_batches * coded - 2 * 4 * maxima)).epsilon(0.02));
}

// The GEMMs of the tested unit read fp8 codes. Code that reads the values gets the decoded weights,
// equal on all ranks.
TEST_CASE("weights gathered in fp8 are decoded for who asks for their values alone") {
  const auto all = world().group();
  if (world().size() == 1) return;
  RunLayout layout{.parallel = {.compute = DType::kBF16, .stage = 3, .gather_fp8 = true},
                   .fp8 = Operands::kFp8};
  Tracer tracer;
  TinyRun run({.shard = all.get()}, *all, layout);
  run.context().set_tracer(&tracer);
  run.train(2);
  const auto calls = [&](const char* kernel) {
    const auto totals = tracer.totals();
    const auto found = totals.find(kernel);
    return found == totals.end() ? 0 : found->second.calls;
  };
  CHECK(calls("fp8_operands") > 0);
  CHECK(calls("fp8_decode") == 0);
  run.parallel().unshard();
  CHECK(calls("fp8_decode") == 0);
  for (const auto& unit : run.parallel().units()) {
    for (const auto& buffer : unit->buffers()) {
      for (const auto& entry : buffer->layout().entries) {
        if (nn::weight_operands(*entry.parameter) == Operands::kPlain) continue;
        const auto values = to_host<bf16>(entry.parameter->value);
        CHECK(calls("fp8_decode") > 0);
        // f32 masters of this rank's shard.
        const auto masters = to_host<float>(buffer->master());
        const OptimSpan span = buffer->spec().span_of(entry, all->rank());
        for (int64_t i = 0; i < span.count; ++i) {
          const float master = masters[size_t(span.offset + i)];
          REQUIRE(std::abs(to_f64(values[size_t(span.first + i)]) - master) <=
                  std::abs(master) / 16 + 1e-3);
        }
      }
    }
  }
}

TEST_CASE("gathers in fp8 are refused where they cannot be") {
  const auto all = world().group();
  const auto refused = [&](const comm::DataParallelOptions& of) {
    return message_of<ConfigError>([&] { TinyRun({.shard = all.get()}, *all, {.parallel = of}); });
  };
  CHECK(contains(refused({.stage = 2, .gather_fp8 = true}), "stage 2"));
  CHECK(
      contains(refused({.stage = 3, .gather_code = kernels::BlockCode::kInt8, .gather_fp8 = true}),
               "with gather_code"));
}

}  // namespace shale::test
