// Tests that sharding, overlap, prefetch, offload and similar options change memory placement and
// timing, but no bit of the results.
#include <bit>

#include "shale/comm/mesh.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/ranks/harness.h"
#include "shale/test/support/ranks/training.h"

namespace shale::test {
namespace {

using comm::DataParallelOptions;
using comm::ReshardAfterForward;

// A training configuration. The model is the same in all rows.
struct Row {
  std::string name;
  DataParallelOptions parallel;
  models::StepOffload offload = {};
  Recompute recompute = Recompute::kNone;
};

std::vector<Row> rows() {
  std::vector<Row> rows = {
      {"stage 3, no prefetch", {.stage = 3, .prefetch = 0}},
      {"stage 3, prefetch 3", {.stage = 3, .prefetch = 3}},
      {"stage 3, kept after forward",
       {.reshard_after_forward = ReshardAfterForward::kNo, .stage = 3}},
      {"stage 3, root freed too", {.reshard_after_forward = ReshardAfterForward::kYes, .stage = 3}},
      {"stage 3, small parameters kept", {.persist_below = 1000, .stage = 3}},
      {"stage 0, optimizer on the host", {.stage = 0}, {.optimizer = true}},
      {"stage 0, a part of it", {.stage = 0}, {.optimizer = true, .share = 0.4}},
      {"stage 0, activations on the host", {.stage = 0}, {.activations = true}},
      {"stage 1, optimizer on the host", {.stage = 1}, {.optimizer = true}},
      {"stage 1, not in the background", {.stage = 1}, {.optimizer = true, .background = false}},
      {"stage 2, optimizer and activations",
       {.stage = 2},
       {.optimizer = true, .activations = true}},
      {"stage 2, a part of the optimizer", {.stage = 2}, {.optimizer = true, .share = 0.4}},
      {"stage 3, optimizer on the host", {.stage = 3}, {.optimizer = true}},
      {"stage 3, prefetch 0, optimizer", {.stage = 3, .prefetch = 0}, {.optimizer = true}},
      {"stage 2, gradients on the host", {.stage = 2}, {.optimizer = true, .gradients = true}},
      {"stage 3, parameters on the host", {.stage = 3}, {.optimizer = true, .parameters = true}},
      {"stage 3, all of it",
       {.persist_below = 100, .stage = 3},
       {.optimizer = true, .gradients = true, .parameters = true, .activations = true},
       Recompute::kFull},
  };
  for (const int stage : {0, 1, 2, 3}) {
    for (const bool overlap : {true, false}) {
      for (const Recompute recompute :
           {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
        rows.push_back({.name = cat("stage ", stage, ", overlap ", overlap, ", recompute ",
                                    static_cast<int>(recompute)),
                        .parallel = {.stage = stage, .overlap = overlap},
                        .recompute = recompute});
      }
    }
  }
  return rows;
}

constexpr int64_t kSteps = 20;

}  // namespace

TEST_CASE("20 steps have the same bits in every stage, with recomputation and overlap or without",
          "[gate]") {
  const auto group = world().group();
  if (12 % group->size() != 0) return;  // the ranks must divide the batch
  struct Precision {
    DType compute, reduce;
  };
  for (const Precision precision :
       {Precision{DType::kF32, DType::kF32}, Precision{DType::kBF16, DType::kF32},
        Precision{DType::kBF16, DType::kBF16}}) {
    TrainOptions options{.micro_batch = 12 / group->size(), .steps = kSteps, .dropout = 0.1f};
    const auto run = [&](const Row& row) {
      options.parallel = row.parallel;
      options.parallel.compute = precision.compute;
      options.parallel.reduce = precision.reduce;
      options.recompute = row.recompute;
      options.offload = row.offload;
      return train(*group, options);
    };
    const Trained want = run({"stage 0", {}});
    // Changes one option that affects results, to show that same() detects it.
    TrainOptions other = options;
    other.clip = 0.99f;
    CHECK_FALSE(same(train(*group, other), want));
    for (const Row& row : rows()) {
      CAPTURE(row.name, dtype_name(precision.compute), dtype_name(precision.reduce));
      CHECK(same(run(row), want));
    }
  }
}

TEST_CASE("stepping on the host during backward changes no bit", "[gate]") {
  const auto group = world().group();
  if (12 % group->size() != 0) return;
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    for (const int stage : {0, 1, 2, 3}) {
      for (const int64_t micro_batch : {int64_t{12} / group->size(), int64_t{1}}) {
        TrainOptions options{.micro_batch = micro_batch,
                             .steps = 3,
                             .clip = 0,
                             .parallel = {.compute = compute, .stage = stage}};
        const Trained want = train(*group, options);
        options.offload = {.optimizer = true,
                           .gradients = stage >= 2,
                           .parameters = stage == 3,
                           .share = stage == 1 ? 0.5 : 1};
        for (const bool background : {true, false}) {
          CAPTURE(dtype_name(compute), stage, micro_batch, background);
          options.offload.background = background;
          CHECK(same(train(*group, options), want));
        }
      }
    }
  }
}

TEST_CASE("float16 with loss scaling has the same bits with offload, skipped steps too", "[gate]") {
  const auto group = world().group();
  if (12 % group->size() != 0) return;
  TrainOptions options{.micro_batch = 12 / group->size(),
                       .steps = kSteps,
                       .loss_scale = 0x1p24f,
                       .parallel = {.compute = DType::kF16}};
  const Trained want = train(*group, options);
  CHECK(want.skipped_steps > 0);  // the first gradients overflow in f16
  CHECK(want.skipped_steps < kSteps / 2);
  for (const int stage : {0, 1, 2, 3}) {
    for (const bool background : {true, false}) {
      CAPTURE(stage, background);
      options.parallel.stage = stage;
      options.offload = {.optimizer = true,
                         .gradients = stage >= 2,
                         .parameters = stage == 3,
                         .activations = true,
                         .background = background};
      const Trained got = train(*group, options);
      CHECK(same(got, want));
      CHECK(got.skipped_steps == want.skipped_steps);
    }
  }
}

TEST_CASE("modules with a precision of their own have the same bits in every stage", "[gate]") {
  const auto group = world().group();
  if (12 % group->size() != 0) return;
  TrainOptions options{
      .micro_batch = 12 / group->size(), .f32_norms = true, .parallel = {.compute = DType::kBF16}};
  const Trained want = train(*group, options);
  for (const int stage : {1, 2, 3}) {
    CAPTURE(stage);
    options.parallel.stage = stage;
    CHECK(same(train(*group, options), want));
  }
  options.f32_norms = false;
  CHECK_FALSE(same(train(*group, options), want));
}

TEST_CASE("hybrid sharding, and resharding inside a node, change no bit", "[gate]") {
  const auto group = world().group();
  if (group->size() != 4) return;  // the test needs two groups of two ranks
  comm::Mesh mesh(*group, {{"replica", 2}, {"node", 2}});
  const TrainOptions plain{.micro_batch = 3, .steps = kSteps};
  const Trained want = train(*group, plain);
  for (const int stage : {1, 2, 3}) {
    CAPTURE(stage);
    TrainOptions options = plain;
    options.parallel.stage = stage;
    CHECK(same(train({.shard = &mesh.group("node"), .replicate = &mesh.group("replica")}, options),
               want));
  }
  TrainOptions accumulating{.global_batch = 16, .micro_batch = 2, .steps = 4};
  accumulating.parallel = {.stage = 3, .reproducible = true};
  CHECK(
      same(train({.shard = &mesh.group("node"), .replicate = &mesh.group("replica")}, accumulating),
           train(alone(), accumulating)));
  TrainOptions small = plain;
  small.parallel = {.reshard_after_forward = ReshardAfterForward::kSmallGroup, .stage = 3};
  CHECK(same(train({.shard = group.get(), .reshard = &mesh.group("node")}, small), want));
}

TEST_CASE("a reproducible run has the same bits on 1, 2, 4 and 8 ranks, in every stage",
          "[gate][many_ranks]") {
  const auto group = world().group();
  const int ranks = group->size();
  if (!std::has_single_bit(unsigned(ranks))) return;
  const int64_t batch = std::max(8, ranks);
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    const TrainOptions plain{.global_batch = batch,
                             .micro_batch = 1,
                             .steps = ranks > 8                ? 2
                                      : compute == DType::kF32 ? 6
                                                               : 3,
                             .dropout = 0.1f,
                             .parallel = {.compute = compute, .reproducible = true}};
    const Trained want = train(alone(), plain);
    for (const int stage : {0, 1, 2, 3}) {
      CAPTURE(stage, ranks, dtype_name(compute));
      TrainOptions options = plain;
      options.parallel.stage = stage;
      const Trained got = train(*group, options);
      CHECK(same(got, want));
      CHECK(same_bits(got.gradients, want.gradients));  // gradients of each parameter
    }
  }
}

}  // namespace shale::test
