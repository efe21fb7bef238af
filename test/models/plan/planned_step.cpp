#include "shale/models/plan/time/planned_step.h"

#include <algorithm>
#include <ctime>
#include <fstream>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "shale/base/config.h"
#include "shale/base/error.h"
#include "shale/models/language/config.h"
#include "shale/models/language/task.h"
#include "shale/models/plan/time/layouts.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/temp_dir.h"

namespace shale::models {
namespace {

// A cluster with round numbers. Kernels are so fast that only the time of what a test examines
// counts.
Cluster cluster_of(int64_t devices_per_node = 8) {
  return {.device = "device",
          .memory_bandwidth = 1e15,
          .flops_bf16 = 1e15,
          .flops_fp32 = 1e12,
          .product_share = 1,
          .overlap_tax = 0,
          .devices_per_node = devices_per_node,
          .node = {.bandwidth = 100e9, .latency_s = 1e-6},
          .network = {.bandwidth = 10e9, .latency_s = 10e-6}};
}

comm::CollectiveCall call_of(comm::CollectiveOp op, int64_t bytes) {
  static char memory[1];
  const View whole = make_view(memory, DType::kF32, {bytes / 4});
  return {.op = op, .in = whole, .out = whole};
}

std::vector<int> ranks_of(int count, int stride = 1) {
  std::vector<int> ranks(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) ranks[size_t(i)] = i * stride;
  return ranks;
}

TrainConfig config_of(int ranks) {
  TrainConfig config;
  config.language.layers = 4;
  config.run.threads = 1;
  config.run.micro_batch = 1;
  config.run.global_batch = 32;
  config.run.device = "cpu";
  resolve(config, ranks);
  return config;
}

PlannedStep step_of(TrainConfig config, const Cluster& cluster, int ranks) {
  resolve(config, ranks);
  KernelTimes kernels(cluster);
  const PlanMachines machines{cluster, kernels};
  std::vector<TimedRank> stages;
  SampleUnit unit;
  for (const int rank : first_ranks_of_stages(config.run, ranks)) {
    LanguageTask task(config);
    unit = task.unit();
    stages.push_back(plan_time(config.run, task, rank, ranks, machines));
  }
  return planned_step(config.run, unit, cluster, stages, ranks);
}

double sum_of_parts(const PlannedStep& step) {
  return step.products + step.attention + step.others + step.slowed + step.exposed_data +
         step.exposed_model + step.exposed_host + step.bubble;
}

}  // namespace

TEST_CASE("a collective takes what its slowest link takes", "[plan]") {
  const Cluster cluster = cluster_of();
  using enum comm::CollectiveOp;
  const auto seconds = [&](comm::CollectiveOp op, const std::vector<int>& ranks) {
    return collective_seconds(cluster, call_of(op, 8'000'000'000), spread_of(cluster, ranks));
  };
  // Each rank sends 7/8 of 8 GB at 100 GB/s; an all-reduce sends twice as much. Six or seven
  // latencies add little.
  CHECK(seconds(kAllGather, ranks_of(8)) == Approx(0.07).epsilon(1e-3));
  CHECK(seconds(kAllReduceSum, ranks_of(8)) == Approx(0.14).epsilon(1e-3));
  // Four nodes: 3/4 of the data leaves each node, over the links of all eight devices.
  CHECK(seconds(kAllGather, ranks_of(32)) == Approx(0.75 * 8 / 80).epsilon(1e-2));
  // The same device on each of four nodes: each uses only its own link.
  CHECK(seconds(kAllGather, ranks_of(4, 8)) == Approx(0.75 * 8 / 10).epsilon(1e-2));
  // A short message takes only latency. Over many nodes, that is the latency of two trees.
  const comm::CollectiveCall short_sum = call_of(kAllReduceSum, 4);
  CHECK(collective_seconds(cluster, short_sum, spread_of(cluster, ranks_of(1024, 8))) ==
        Approx(20 * 10e-6).epsilon(1e-2));
  // In a ring each rank passes all its data to the next, over the network if two neighbours are on
  // different nodes.
  comm::CollectiveCall pass = call_of(kAllToAllV, 8'000'000'000);
  pass.in_counts = {0, 2'000'000'000, 0, 0};
  CHECK(collective_seconds(cluster, pass, spread_of(cluster, ranks_of(4))) ==
        Approx(0.08).epsilon(1e-3));
  CHECK(collective_seconds(cluster, pass, spread_of(cluster, ranks_of(4, 4))) ==
        Approx(0.8).epsilon(1e-3));
  CHECK(seconds(kBarrier, ranks_of(8)) < 1e-5);
  CHECK(message_seconds(cluster, 1'000'000'000, 7, 8) == Approx(0.1).epsilon(1e-3));
  CHECK(message_seconds(cluster, 1'000'000'000, 6, 7) == Approx(0.01).epsilon(1e-3));
}

TEST_CASE("the clock runs collectives beside kernels, those of a lane in turn", "[plan]") {
  Cluster cluster = cluster_of();
  cluster.node.latency_s = 0;
  KernelTimes kernels(cluster);
  StepClock clock(cluster, kernels);
  const auto ranks = std::make_shared<const std::vector<int>>(ranks_of(2));
  const comm::CollectiveCall call = call_of(comm::CollectiveOp::kAllGather, 2'000'000'000);
  clock.begin_step(1);
  CHECK(clock.queue(call, ranks, comm::Lane::kData) == Approx(0.01).epsilon(1e-9));
  const double second = clock.queue(call, ranks, comm::Lane::kData);
  CHECK(second == Approx(0.02).epsilon(1e-9));
  CHECK(clock.queue(call, ranks, comm::Lane::kModel) == Approx(0.01).epsilon(1e-9));
  clock.wait_until(second, comm::Lane::kData);
  clock.wait_until(second, comm::Lane::kData);  // returns immediately
  const RankTime time = clock.end_step();
  CHECK(time.total == Approx(0.02).epsilon(1e-9));
  CHECK(time.exposed[size_t(comm::Lane::kData)] == Approx(0.02).epsilon(1e-9));
  CHECK(time.exposed[size_t(comm::Lane::kModel)] == 0);
}

TEST_CASE("scores in memory cost their traffic, and their products over all pairs", "[plan]") {
  Cluster cluster = cluster_of();
  cluster.memory_bandwidth = 1e12;
  cluster.bandwidth_share = 1;
  cluster.scores = Cluster::Scores::kKept;
  // Attention computes 1e9 scores with heads of 64. Memory traffic of 13 bytes per score in forward
  // and 19 in backward takes longer than the GEMMs.
  const double kept = attention_seconds(cluster, 1e9, 64, DType::kBF16, true);
  CHECK(attention_seconds(cluster, 1e9, 64, DType::kBF16, false) == Approx(13e-3).epsilon(1e-6));
  CHECK(kept == Approx(19e-3).epsilon(1e-6));
  cluster.scores = Cluster::Scores::kAgain;
  CHECK(attention_seconds(cluster, 1e9, 64, DType::kBF16, true) == Approx(kept + 13e-3));
  // With fast memory the GEMMs dominate: two in forward and four in backward, of 128 GFLOP each.
  cluster.memory_bandwidth = 1e18;
  cluster.scores = Cluster::Scores::kKept;
  CHECK(attention_seconds(cluster, 1e9, 64, DType::kBF16, true) ==
        Approx(4 * 128e9 / 1e15).epsilon(1e-3));
}

TEST_CASE("other programs' exchanges and rows change a tensor rank's step alone", "[plan]") {
  Cluster cluster = cluster_of();
  cluster.memory_bandwidth = 1e12;
  TrainConfig config = config_of(1);
  const PlannedStep alone = step_of(config, cluster, 1);
  config.run.tensor = 2;
  const PlannedStep waited = step_of(config, cluster, 2);
  cluster.exchanges_in_pieces = true;
  const PlannedStep pieces = step_of(config, cluster, 2);
  // Of two pieces, the first overlaps with no GEMM, so half of the time stays exposed.
  CHECK(pieces.exposed_model >= 0.5 * waited.exposed_model * (1 - 1e-9));
  CHECK(pieces.exposed_model < waited.exposed_model);
  CHECK(pieces.products == Approx(waited.products));
  CHECK(sum_of_parts(pieces) == Approx(pieces.seconds));
  cluster.exchanges_in_pieces = false;
  cluster.sequence_parallel = false;
  CHECK(step_of(config, cluster, 2).others > waited.others);
  config.run.tensor = 1;
  cluster.exchanges_in_pieces = true;
  CHECK(step_of(config, cluster, 1).seconds == Approx(alone.seconds));
}

TEST_CASE("the parts of a planned step add up to it", "[plan]") {
  Cluster cluster = cluster_of(2);
  cluster.overlap_tax = 0.5;
  for (const char* layout : {"alone", "zero", "tensor", "pipeline"}) {
    CAPTURE(layout);
    TrainConfig config = config_of(4);
    if (layout == std::string("zero")) config.run.zero = 3;
    if (layout == std::string("tensor")) config.run.tensor = 2;
    if (layout == std::string("pipeline")) config.run.pipeline = 4;
    const PlannedStep step = step_of(config, cluster, 4);
    CHECK(sum_of_parts(step) == Approx(step.seconds).epsilon(1e-3));
    const double known = std::accumulate(step.by_basis.begin(), step.by_basis.end(), 0.0);
    CHECK(known == Approx(1.0).epsilon(1e-6));
    CHECK((step.exposed_model > 0) == (config.run.tensor > 1));
    CHECK((step.bubble > 0) == (config.run.pipeline > 1));
    CHECK(step.items == 32 * 256);
    CHECK(step.mfu() > 0);
  }
}

TEST_CASE("a slower network is waited for, and stage 3 waits for more of it", "[plan]") {
  Cluster cluster = cluster_of(1);
  TrainConfig config = config_of(4);
  config.run.no_overlap = true;
  const double ddp = step_of(config, cluster, 4).exposed_data;
  config.run.zero = 3;
  const double sharded = step_of(config, cluster, 4).exposed_data;
  // Parameters are gathered for forward and for backward, in addition to gradient reduction.
  CHECK(sharded > 1.3 * ddp);
  cluster.network.bandwidth /= 10;
  cluster.network.latency_s *= 10;
  CHECK(step_of(config, cluster, 4).exposed_data == Approx(10 * sharded).epsilon(0.02));
}

TEST_CASE("equal stages idle as the formula of 1f1b has it", "[plan]") {
  Cluster cluster = cluster_of();
  cluster.flops_fp32 = 1e9;  // so slow that messages and latencies are negligible
  cluster.memory_bandwidth = 1e18;
  cluster.node = {.bandwidth = 1e15, .latency_s = 0};
  TrainConfig config = config_of(4);
  config.run.pipeline = 4;
  const PlannedStep step = step_of(config, cluster, 4);
  // The bubble is (p - 1) / m of the computation, for p = 4 stages and m = 32 micro-batches. The
  // first and last stage do a little more work.
  CHECK(step.bubble / (step.seconds - step.bubble) == Approx(3.0 / 32).epsilon(0.25));
}

TEST_CASE("measured kernels are kept, and taken again", "[plan]") {
  Cluster cluster = cluster_of();
  cluster.is_gpu = false;
  const test::TempDir folder;
  const std::string path = folder.file("times");
  TrainConfig config = config_of(1);
  config.run.global_batch = 1;
  resolve(config, 1);
  const auto plan = [&](KernelTimes& kernels) {
    const PlanMachines machines{cluster, kernels};
    LanguageTask task(config);
    return plan_time(config.run, task, 0, 1, machines).time;
  };
  KernelTimes measuring(cluster);
  measuring.set_measures(true);
  const RankTime measured = plan(measuring);
  CHECK(measured.by_basis[size_t(Basis::kMeasured)] > 0);
  CHECK(measured.by_basis[size_t(Basis::kExtrapolated)] == 0);
  measuring.write(path);

  KernelTimes stored(cluster);
  stored.read(path);
  const RankTime again = plan(stored);
  CHECK(again.total == Approx(measured.total).epsilon(1e-9));
  CHECK(again.by_basis[size_t(Basis::kMeasured)] > 0);
  // Sizes that were not measured are extrapolated.
  config.run.micro_batch = config.run.global_batch = 2;
  resolve(config, 1);
  CHECK(plan(stored).by_basis[size_t(Basis::kExtrapolated)] > 0);

  KernelTimes broken(cluster);
  std::ofstream(path) << "1e-3 gemm\nsoon attention\n";
  const std::string message = test::message_of<DataError>([&] { broken.read(path); });
  CHECK(test::contains(message, "times:2: expected seconds"));
}

TEST_CASE("what a collective's time takes to find does not grow with its ranks", "[plan]") {
  const Cluster cluster = cluster_of();
  const comm::CollectiveCall call = call_of(comm::CollectiveOp::kAllGather, 8);
  // Uses the minimum of several runs, because other processes use the machine too.
  const auto seconds_of = [&](int ranks) {
    KernelTimes kernels(cluster);
    StepClock clock(cluster, kernels);
    const auto members = std::make_shared<const std::vector<int>>(ranks_of(ranks));
    double least = std::numeric_limits<double>::max();
    for (int i = 0; i < 5; ++i) {
      const std::clock_t began = std::clock();
      for (int j = 0; j < 10'000; ++j) clock.queue(call, members, comm::Lane::kData);
      least = std::min(least, double(std::clock() - began) / CLOCKS_PER_SEC);
    }
    return least;
  };
  const double few = seconds_of(16), many = seconds_of(16'384);
  CAPTURE(few, many);
  CHECK(many < 5 * few + 0.002);
}

}  // namespace shale::models
