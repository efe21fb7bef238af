// Tests local steps between replicas in hybrid sharding: the outer step, its traffic, and
// checkpoints that are saved between two outer steps.
#include "shale/comm/parallel/data/local_steps.h"

#include <algorithm>
#include <cmath>

#include "shale/comm/parallel/data/replica_check.h"
#include "shale/comm/traffic.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"
#include "shale/test/support/ranks/harness.h"
#include "shale/test/support/ranks/replicas.h"
#include "shale/test/support/ranks/tiny_run.h"

namespace shale::test {
namespace {

using comm::LocalStepsOptions;

RunLayout layout_of(const LocalStepsOptions& options, int stage = 1) {
  RunLayout layout{.parallel = {.stage = stage}};
  layout.local_steps = options;
  return layout;
}

// Returns this rank's parts of one state tensor, joined.
std::vector<float> part_of(TinyRun& run, const std::string& name) {
  return floats_of(local_state(run).at(name));
}

std::vector<std::string> parameters_of(TinyRun& run) {
  std::vector<std::string> names;
  for (const StatePart& part : run.parts()) {
    if (part.name.ends_with("/local")) names.push_back(part.name.substr(0, part.name.size() - 6));
  }
  return names;
}

// Returns true if all replicas have the same bits.
bool are_alike(const Replicas& replicas, const std::vector<float>& values) {
  const std::string_view bytes(reinterpret_cast<const char*>(values.data()),
                               values.size() * sizeof(float));
  const auto all = replicas.groups.replicate->all_gather_bytes(bytes);
  return std::all_of(all.begin(), all.end(), [&](const std::string& one) { return one == bytes; });
}

}  // namespace

TEST_CASE("an outer step after each, of rate 1 without momentum, is data parallelism of SGD") {
  const auto all = world().group();
  for (const int count : replica_counts()) {
    const Replicas replicas(*all, count);
    RunLayout local = layout_of({.every = 1, .lr = 1, .momentum = 0});
    RunLayout plain{.parallel = {.stage = 1}};
    local.clip = plain.clip = 0;  // no clipping, as each replica has its own gradient norm
    TinyRun want(replicas.groups, *all, plain, OptimizerKind::kSgd);
    TinyRun got(replicas.groups, *all, local, OptimizerKind::kSgd);
    const std::vector<float> first = want.train(1), losses = want.train(5);
    CHECK(got.train(1) == first);
    const std::vector<float> local_losses = got.train(5);
    for (size_t i = 0; i < losses.size(); ++i) {
      CAPTURE(count, i, losses[i], local_losses[i]);
      // The bound allows for roundings of the gradients, sums and updates of six steps.
      CHECK(std::abs(local_losses[i] - losses[i]) <= 100 * 0x1p-24 * losses[i]);
    }
  }
}

TEST_CASE("replicas differ between outer steps, and are alike after them, in all stages") {
  const auto all = world().group();
  for (const int count : replica_counts()) {
    const Replicas replicas(*all, count);
    for (const int stage : {1, 2, 3}) {
      CAPTURE(count, stage);
      TinyRun run(replicas.groups, *all, layout_of({.every = 3, .start = 1}, stage));
      run.train(2);
      CHECK_FALSE(are_alike(replicas, values_of(run)));
      run.step().with_anchors([&] {
        CHECK(are_alike(replicas, values_of(run)));
        comm::check_replicas(run.parallel(), *all);
      });
      CHECK_FALSE(are_alike(replicas, values_of(run)));
      run.train(2);
      CHECK(are_alike(replicas, values_of(run)));
      run.train(1);
      run.step().finish_local_steps(5);
      CHECK(are_alike(replicas, values_of(run)));
    }
  }
}

TEST_CASE("the first steps have the bits of runs without local ones") {
  const auto all = world().group();
  for (const int count : replica_counts()) {
    const Replicas replicas(*all, count);
    TinyRun plain(replicas.groups, *all, {{.stage = 1}});
    TinyRun warm(replicas.groups, *all, layout_of({.every = 2, .start = 3}));
    CHECK(warm.train(3) == plain.train(3));
    CHECK(same_bits(values_of(warm), values_of(plain)));
    CHECK(warm.train(1) == plain.train(1));  // the loss is computed before this step's update
    CHECK_FALSE(same_bits(values_of(warm), values_of(plain)));
  }
}

TEST_CASE("an outer step is Nesterov's, of the mean of what replicas have changed") {
  const auto all = world().group();
  constexpr LocalStepsOptions kOptions = {.every = 2, .lr = 0.7f, .momentum = 0.9f};
  LocalStepsOptions never = kOptions;
  never.every = 1000;
  for (const int count : replica_counts()) {
    const Replicas replicas(*all, count);
    const SharedDir dir(*all);
    TinyRun run(replicas.groups, *all, layout_of(kOptions));
    run.save(dir / "checkpoints");
    for (const int64_t begin : {0, 2}) {
      CAPTURE(count, begin);
      // A run without outer steps gives the master weights just before the outer step of `run`.
      TinyRun apart(replicas.groups, *all, layout_of(never));
      apart.load(dir / "checkpoints" + cat("/step_0000000", begin));
      apart.train(2);
      run.train(2);
      for (const std::string& name : parameters_of(run)) {
        CAPTURE(name);
        const auto start = part_of(apart, name);
        const auto momentum = part_of(apart, name + "/outer_momentum");
        const auto own = part_of(apart, name + "/local");
        const auto anchor = part_of(run, name), after = part_of(run, name + "/outer_momentum");
        std::vector<double> mean(own.begin(), own.end());
        replicas.groups.replicate->all_reduce_sum(make_view(mean.data(), {int64_t(mean.size())}));
        for (size_t i = 0; i < own.size(); ++i) {
          const double d = double(start[i]) - mean[i] / count;
          const double m = double{0.9f} * double(momentum[i]) + d;
          const double a = double(start[i]) - double{0.7f} * (d + double{0.9f} * m);
          // The bound covers roundings of differences below 4, a sum over replicas, three products.
          const double bound = 16 * 0x1p-24 * (std::abs(double(start[i])) + 1);
          REQUIRE(std::abs(double(after[i]) - m) <= bound);
          REQUIRE(std::abs(double(anchor[i]) - a) <= bound);
        }
        CHECK(part_of(run, name + "/local") == anchor);
      }
      run.save(dir / "checkpoints");
    }
  }
}

TEST_CASE("local steps send 4 bytes a step, and of each element a sum in every outer step") {
  const auto all = world().group();
  constexpr int64_t kEvery = 4;
  for (const int count : replica_counts()) {
    const Replicas replicas(*all, count);
    comm::ProcessGroup& between = *replicas.groups.replicate;
    for (const bool in_turn : {false, true}) {
      CAPTURE(count, in_turn);
      TinyRun run(replicas.groups, *all, layout_of({.every = kEvery, .in_turn = in_turn}, 3));
      double elements = 0, most = 0;
      for (const OptimShard& shard : run.optimizer().shards()) {
        elements += double(shard.grad.numel());
      }
      // A buffer's first outer step may come before step kEvery, so these steps are not measured.
      run.train(kEvery);
      const double factor = 2 * (count - 1.0) / count;
      between.reset_traffic();
      for (int64_t step = 0; step < kEvery; ++step) {
        const double before = between.traffic().totals(comm::Traffic::kGradients).sent_bytes;
        run.train(1);
        most =
            std::max(most, between.traffic().totals(comm::Traffic::kGradients).sent_bytes - before);
      }
      CHECK(between.traffic().totals(comm::Traffic::kGradients).sent_bytes ==
            Approx(factor * 4 * elements));
      // The group of all ranks also sends the control traffic of the test itself.
      const double control = between.traffic().totals(comm::Traffic::kControl).sent_bytes;
      if (count < world().size()) CHECK(control == Approx(factor * 4 * kEvery));
      CHECK(between.traffic().totals(comm::Traffic::kParameters).sent_bytes == 0);
      // With `in_turn`, the tiny model averages five buffers in different steps. The largest is the
      // embedding's.
      if (in_turn) CHECK(most < 0.6 * factor * 4 * elements);
    }
  }
}

TEST_CASE("local steps resume with the same bits, wherever they were", "[checkpoint]") {
  const auto all = world().group();
  for (const int count : replica_counts()) {
    const Replicas replicas(*all, count);
    for (const bool in_turn : {false, true}) {
      // Saves before the first local step, between two outer steps, and after an outer step.
      for (const int64_t at : {1, 2, 3, 5}) {
        CAPTURE(count, in_turn, at);
        const SharedDir dir(*all);
        const RunLayout layout = layout_of({.every = 3, .start = 2, .in_turn = in_turn}, 2);
        TinyRun run(replicas.groups, *all, layout);
        run.train(at);
        run.save(dir / "checkpoints");
        const std::vector<float> want = run.train(4);
        TinyRun again(replicas.groups, *all, layout);
        again.poison();
        again.load(dir / "checkpoints" + cat("/step_0000000", at));
        CHECK(again.train(4) == want);
        CHECK(local_state(again) == local_state(run));
      }
    }
  }
}

TEST_CASE("other numbers of replicas go on from the anchors and the mean of the rest",
          "[checkpoint]") {
  if (world().size() != 4) return;
  const auto all = world().group();
  for (const auto& [from, to] : {std::pair(4, 2), std::pair(2, 4)}) {
    CAPTURE(from, to);
    const SharedDir dir(*all);
    const Replicas before(*all, from), after(*all, to);
    const RunLayout layout = layout_of({.every = 4});
    TinyRun run(before.groups, *all, layout);
    run.train(3);
    run.save(dir / "checkpoints");
    TinyRun loaded(after.groups, *all, layout);
    loaded.poison();
    loaded.load(dir / "checkpoints/step_00000003");
    const auto anchors = [](TinyRun& of) {
      std::vector<float> values;
      of.step().with_anchors([&] { values = values_of(of); });
      return values;
    };
    CHECK(same_bits(anchors(loaded), anchors(run)));
    std::vector<float> mean = values_of(run);
    all->all_reduce_sum(make_view(mean.data(), {int64_t(mean.size())}));
    const std::vector<float> got = values_of(loaded);
    CHECK(are_alike(after, got));
    for (size_t i = 0; i < mean.size(); ++i) {
      const double want = double(mean[i]) / world().size();
      REQUIRE(std::abs(double(got[i]) - want) <= 8 * 0x1p-24 * (std::abs(want) + 1));
    }
    loaded.train(2);
  }
}

TEST_CASE("an overflow on one replica skips the local step of all of them") {
  const auto all = world().group();
  for (const int count : replica_counts()) {
    const Replicas replicas(*all, count);
    CAPTURE(count);
    RunLayout layout = layout_of({.every = 4});
    layout.loss_scale = 1024;
    TinyRun run(replicas.groups, *all, layout);
    run.train(1);
    const auto before = local_state(run);
    run.train(1, all->rank() + 1 == all->size() ? INFINITY : 1);
    CHECK(run.skipped_steps() == 1);
    CHECK(local_state(run) == before);
    run.train(1);
    CHECK(run.skipped_steps() == 1);
    CHECK(local_state(run) != before);
  }
}

TEST_CASE("local steps need replicas, and numbers that can be") {
  const auto all = world().group();
  const auto refused = [&](const comm::ShardGroups& groups, const LocalStepsOptions& options) {
    return message_of<ConfigError>([&] { TinyRun(groups, *all, layout_of(options)); });
  };
  CHECK(contains(refused({.shard = all.get()}, {}), "two or more replicas, found one"));
  if (world().size() < 2) return;
  const Replicas replicas(*all, world().size());
  CHECK(contains(refused(replicas.groups, {.every = 0}), "every is 0"));
  CHECK(contains(refused(replicas.groups, {.start = -1}), "start is -1"));
  CHECK(contains(refused(replicas.groups, {.lr = 0}), "lr is 0"));
  CHECK(contains(refused(replicas.groups, {.momentum = 1}), "momentum is 1"));
  RunLayout offloaded = layout_of({});
  offloaded.offload = {.optimizer = true, .during_backward = false};
  CHECK(contains(message_of<ConfigError>([&] { TinyRun(replicas.groups, *all, offloaded); }),
                 "; do not offload"));
}

}  // namespace shale::test
