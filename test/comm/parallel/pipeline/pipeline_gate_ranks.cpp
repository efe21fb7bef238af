// Tests that pipelines, schedules, chunks and splits change when and where work runs, but no bit.
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"
#include "shale/test/support/ranks/harness.h"
#include "shale/test/support/ranks/pipeline_training.h"

namespace shale::test {
namespace {

using comm::ScheduleKind;
using enum comm::ScheduleKind;

// Returns pipeline sizes that divide the number of ranks. Size 1 tests several chunks on one rank.
std::vector<int> pipeline_sizes(int ranks) {
  std::vector<int> sizes;
  for (const int size : {1, 2, 4}) {
    if (ranks % size == 0) sizes.push_back(size);
  }
  return sizes;
}

// Splits `all` into groups of `count` ranks. A run without a pipeline uses one such group for data
// parallelism.
std::unique_ptr<comm::ProcessGroup> data_ranks(comm::ProcessGroup& all, int count) {
  return all.split(all.rank() / count, all.rank(), "data");
}

struct ScheduleOf {
  ScheduleKind kind;
  int chunks;
};

std::vector<ScheduleOf> schedules(int ranks) {
  std::vector<ScheduleOf> all = {{kInterleaved, 2}, {kZbV, 2}};
  if (ranks == 1) return all;
  all.insert(all.end(), {{kGpipe, 1}, {k1F1B, 1}, {kZbH1, 1}});
  return all;
}

// Compares every schedule and pipeline size with data parallelism alone.
void check_all(comm::ProcessGroup& all, const models::LanguageModelConfig& model,
               const TrainOptions& options, const std::vector<int64_t>& micro_batches) {
  for (const int ranks : pipeline_sizes(all.size())) {
    const auto data = data_ranks(all, all.size() / ranks);
    for (const int64_t micros : micro_batches) {
      const Trained want =
          train_pipeline(*data, model, {.micro_batches = micros}, options);
      REQUIRE(std::isfinite(want.losses.back()));
      for (const auto [kind, chunks] : schedules(ranks)) {
        if (ranks * chunks > 8) continue;  // the model can be split into at most eight stages
        const bool splits = kind == kZbH1 || kind == kZbV;
        if (splits && options.recompute == Recompute::kFull) continue;
        CAPTURE(model.family, ranks, micros, schedule_name(kind), chunks,
                options.parallel.stage, dtype_name(options.parallel.compute));
        const Trained got = train_pipeline(
            all, model,
            {.ranks = ranks, .kind = kind, .chunks = chunks, .micro_batches = micros}, options);
        CHECK(same_bits(got.losses, want.losses));
        CHECK(same_bits(got.norms, want.norms));
        CHECK(same_bits(got.parameters, want.parameters));
        CHECK(got.skipped_steps == want.skipped_steps);
      }
    }
  }
}

}  // namespace

TEST_CASE("a pipeline has the bits of one rank in every schedule", "[gate][pipeline]") {
  const auto all = world().group();
  if (all->size() == 3) return;
  const TrainOptions options{.steps = 3};
  check_all(*all, six_layers("llama"), options, {4, 8});
}

TEST_CASE("a tied table has the bits of one rank in a reproducible run", "[gate][pipeline]") {
  const auto all = world().group();
  if (all->size() == 3) return;
  for (const int stage : {0, 1}) {
    TrainOptions options{.steps = 3, .dropout = 0.1f};
    options.parallel = {.stage = stage, .reproducible = true};
    check_all(*all, six_layers("gpt2"), options, {4});
  }
}

namespace {

// Tests pipelines with mixed precision, ZeRO stages and recomputation: all combinations if `every`,
// otherwise half of them.
void check_beside(comm::ProcessGroup& all, bool every) {
  const models::LanguageModelConfig model = six_layers("qwen3");
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    for (const int stage : {0, 1}) {
      for (const Recompute recompute : {Recompute::kSelective, Recompute::kFull}) {
        if (!every && (stage == 1) != (recompute == Recompute::kFull)) continue;
        TrainOptions options{.steps = 2, .recompute = recompute};
        options.parallel = {.compute = compute, .stage = stage};
        if (compute == DType::kBF16) options.parallel.reduce = DType::kBF16;
        check_all(all, model, options, every ? std::vector<int64_t>{4, 8} : std::vector<int64_t>{4});
      }
    }
  }
}

}  // namespace

TEST_CASE("a pipeline has the bits of one rank with what goes beside it", "[gate][pipeline]") {
  const auto all = world().group();
  if (all->size() == 3) return;
  check_beside(*all, /*every=*/false);
  const models::LanguageModelConfig model = six_layers("qwen3");
  TrainOptions scaled{.steps = 12, .loss_scale = 0x1p24f};
  scaled.parallel = {.compute = DType::kF16};
  check_all(*all, model, scaled, {4});
  TrainOptions host{.steps = 3, .offload = {.optimizer = true}};
  host.parallel = {.stage = 1};
  check_all(*all, model, host, {4});
}

TEST_CASE("uneven stages, one slot and other micro-batches change no bit", "[gate][pipeline]") {
  const auto all = world().group();
  if (all->size() % 2 != 0) return;
  const models::LanguageModelConfig model = six_layers("llama");
  const auto data = data_ranks(*all, all->size() / 2);
  const TrainOptions options{.micro_batch = 2, .steps = 3};
  const Trained want = train_pipeline(*data, model, {.micro_batches = 5}, options);
  const auto got = [&](const PipelineRun& run) {
    return train_pipeline(*all, model, run, options);
  };
  CHECK(same(got({.ranks = 2, .split = {1, 7}, .micro_batches = 5}), want));
  CHECK(same(got({.ranks = 2, .split = {7, 1}, .micro_batches = 5}), want));
  CHECK(same(got({.ranks = 2, .kind = kZbH1, .split = {5, 3}, .micro_batches = 5, .slots = 1}),
             want));
  CHECK(same(got({.ranks = 2, .kind = kZbV, .chunks = 2, .split = {1, 3, 3, 1}, .micro_batches = 5}),
             want));
  // Checks that a difference is detected.
  CHECK_FALSE(same(got({.ranks = 2, .micro_batches = 4}), want));
}

TEST_CASE("a stage sends each activation and each gradient once", "[gate][pipeline]") {
  const auto all = world().group();
  if (all->size() != 2 && all->size() != 4) return;
  const models::LanguageModelConfig model = six_layers("llama");
  const TrainOptions options{.micro_batch = 2, .steps = 3};
  const int ranks = all->size();
  for (const auto [kind, chunks] : schedules(ranks)) {
    if (ranks * chunks > 8) continue;
    const auto sent = [&] { return all->traffic().totals(comm::Traffic::kActivations).sent_bytes; };
    const double before = sent();
    train_pipeline(*all, model, {.ranks = ranks, .kind = kind, .chunks = chunks}, options);
    const comm::StagePlacement place =
        make_schedule(kind, ranks, chunks, /*micros=*/4).placement;
    int messages = 0;  // number of messages per micro-batch
    for (int stage = 0; stage < place.stages(); ++stage) {
      if (place.rank_of(stage) != all->rank()) continue;
      for (const int next : {stage + 1, stage - 1}) {
        const bool is_stage = next >= 0 && next < place.stages();
        messages += is_stage && place.rank_of(next) != all->rank() ? 1 : 0;
      }
    }
    CAPTURE(schedule_name(kind), chunks, messages);
    CHECK(sent() - before == double(3 * 4 * messages * 2 * kLength * model.width * 4));
  }
}

// Run with mpirun -np 4 test_mpi "[long_pipeline]"; takes minutes.
TEST_CASE("every pipeline has the bits of one rank, with all that goes beside it",
          "[.][long_pipeline]") {
  const auto all = world().group();
  check_beside(*all, /*every=*/true);
  for (const std::string family : {"llama", "qwen2", "olmo2", "gpt2"}) {
    for (const DType compute : {DType::kF32, DType::kBF16}) {
      for (const int stage : {0, 1}) {
        for (const float clip : {0.f, 0.5f}) {
          TrainOptions options{.steps = 8, .dropout = family == "gpt2" ? 0.1f : 0, .clip = clip};
          options.parallel = {.compute = compute, .stage = stage, .reproducible = family == "gpt2"};
          check_all(*all, six_layers(family), options, {4, 8});
        }
      }
    }
  }
}

}  // namespace shale::test
