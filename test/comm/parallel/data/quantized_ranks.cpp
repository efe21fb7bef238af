// Tests quantized gathers and reductions: accuracy, traffic, and that replicas stay identical.
#include <cmath>

#include "shale/comm/parallel/data/replica_check.h"
#include "shale/comm/traffic.h"
#include "shale/kernels/block_codes.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"
#include "shale/test/support/ranks/harness.h"
#include "shale/test/support/ranks/replicas.h"
#include "shale/test/support/ranks/tiny_run.h"

namespace shale::test {
namespace {

using kernels::BlockCode;
using Code = std::optional<BlockCode>;

// Returns the losses of `steps` steps; all ranks shard the state.
std::vector<float> losses_of(comm::ProcessGroup& all, const comm::DataParallelOptions& parallel,
                             int64_t steps) {
  TinyRun run({.shard = &all}, all, {.parallel = parallel});
  return run.train(steps);
}

// Number of elements in buffers of matrices, which are sent as codes, and in buffers of other
// parameters.
struct Elements {
  double coded = 0, plain = 0;
};
Elements elements_of(TinyRun& run) {
  Elements elements;
  for (const auto& unit : run.parallel().units()) {
    for (const auto& buffer : unit->buffers()) {
      const bool is_coded =
          buffer->layout().entries.front().parameter->shape.ndim() > 1 && !buffer->layout().owner;
      (is_coded ? elements.coded : elements.plain) += double(buffer->layout().numel);
    }
  }
  return elements;
}

}  // namespace

TEST_CASE("with codes losses are within 1% of those without, in stages 2 and 3") {
  const auto all = world().group();
  if (world().size() == 1) return;
  const int64_t steps = 12;
  const std::vector<float> want = losses_of(*all, {.stage = 2}, steps);
  for (const int stage : {2, 3}) {
    for (const Code gather : {Code(), Code(BlockCode::kInt8)}) {
      for (const Code reduce : {Code(), Code(BlockCode::kInt8), Code(BlockCode::kNf4)}) {
        CAPTURE(stage, gather.has_value(), reduce.has_value());
        const std::vector<float> got =
            losses_of(*all, {.stage = stage, .gather_code = gather, .reduce_code = reduce}, steps);
        const bool none = !gather && !reduce;
        CHECK((got == want) == none);
        for (size_t i = 0; i < want.size(); ++i) {
          CHECK(std::abs(got[i] - want[i]) < 0.01 * want[i]);
        }
      }
    }
  }
}

TEST_CASE("stages 2 and 3 have the same bits with codes, and ranks the same values") {
  const auto all = world().group();
  if (world().size() == 1) return;
  for (const BlockCode code : {BlockCode::kInt8, BlockCode::kNf4}) {
    for (const DType compute : {DType::kF32, DType::kBF16}) {
      CAPTURE(int(code), int(compute));
      const auto run_of = [&](int stage) {
        RunLayout layout{
            .parallel = {
                .compute = compute, .stage = stage, .gather_code = code, .reduce_code = code}};
        auto run = std::make_unique<TinyRun>(comm::ShardGroups{.shard = all.get()}, *all, layout);
        return run;
      };
      const auto two = run_of(2), three = run_of(3);
      CHECK(two->train(3) == three->train(3));
      CHECK(same_bits(values_of(*two), values_of(*three)));
      comm::check_replicas(two->parallel(), *all);
    }
  }
}

TEST_CASE("codes send a byte, or half of one, and a scale for 64, of each element of a matrix") {
  const auto all = world().group();
  if (world().size() == 1) return;
  const double n = world().size(), others = (n - 1) / n;
  for (const BlockCode code : {BlockCode::kInt8, BlockCode::kNf4}) {
    CAPTURE(int(code));
    const double bytes = code == BlockCode::kInt8 ? 1 + 4. / 64 : 0.5 + 4. / 64;
    TinyRun run({.shard = all.get()}, *all,
                {.parallel = {.stage = 2, .gather_code = code, .reduce_code = code}});
    run.train(1);
    const Elements elements = elements_of(run);
    REQUIRE(elements.coded > 0);
    all->reset_traffic();
    run.train(1);
    run.step().finish_update();
    const double micro_batches = 12 / n;  // stage 2 reduces gradients of each micro-batch
    const auto sent = [&](comm::Traffic traffic) {
      return all->traffic().totals(traffic).sent_bytes;
    };
    CHECK(sent(comm::Traffic::kParameters) ==
          Approx(others * (bytes * elements.coded + 4 * elements.plain)));
    CHECK(sent(comm::Traffic::kGradients) ==
          Approx(micro_batches * others * (bytes * elements.coded + 4 * elements.plain)));
  }
}

TEST_CASE("a run with codes resumes with the same bits, and goes on without them", "[checkpoint]") {
  const auto all = world().group();
  if (world().size() == 1) return;
  const SharedDir dir(*all);
  const RunLayout layout{
      .parallel = {.stage = 3, .gather_code = BlockCode::kInt8, .reduce_code = BlockCode::kNf4}};
  TinyRun run({.shard = all.get()}, *all, layout);
  run.train(2);
  run.save(dir / "checkpoints");
  const std::vector<float> values = values_of(run), want = run.train(3);
  TinyRun again({.shard = all.get()}, *all, layout);
  again.poison();
  again.load(dir / "checkpoints/step_00000002");
  CHECK(again.train(3) == want);
  TinyRun plain({.shard = all.get()}, *all, {.parallel = {.stage = 1}});
  plain.load(dir / "checkpoints/step_00000002");
  // Values are restored from the master weights, not from codes.
  CHECK(same_bits(values_of(plain), values));
  plain.train(1);
}

TEST_CASE("a gradient that overflows is one on all ranks, through codes too") {
  const auto all = world().group();
  if (world().size() == 1) return;
  for (const BlockCode code : {BlockCode::kInt8, BlockCode::kNf4}) {
    RunLayout layout{.parallel = {.stage = 2, .reduce_code = code}};
    layout.loss_scale = 1024;
    TinyRun run({.shard = all.get()}, *all, layout);
    run.train(1);
    const auto before = local_state(run);
    run.train(1, all->rank() + 1 == all->size() ? INFINITY : 1);
    CHECK(run.skipped_steps() == 1);
    CHECK(local_state(run) == before);
  }
}

TEST_CASE("codes are refused where they cannot be") {
  const auto all = world().group();
  const auto refused = [&](const comm::ShardGroups& groups, const comm::DataParallelOptions& of) {
    return message_of<ConfigError>([&] { TinyRun(groups, *all, {.parallel = of}); });
  };
  const Code code = BlockCode::kInt8;
  CHECK(contains(refused({.shard = all.get()}, {.stage = 1, .gather_code = code}), "stage 1"));
  if (world().size() != 2) return;
  CHECK(contains(
      refused({.shard = all.get()}, {.stage = 2, .reproducible = true, .reduce_code = code}),
      "reproducible"));
  const Replicas replicas(*all, 2);
  CHECK(contains(refused(replicas.groups, {.stage = 2, .reduce_code = code}), "one group"));
}

}  // namespace shale::test
