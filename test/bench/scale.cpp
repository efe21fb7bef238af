// Costs that grow with the number of ranks, and costs that do not.
#include <chrono>
#include <mutex>
#include <thread>

#include "shale/bench/support/lock_count.h"
#include "shale/bench/support/simulated_run.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/temp_dir.h"

namespace shale::bench {
namespace {

constexpr int kFew = 64, kMany = 1024;

SimulatedJob job_of(int ranks) {
  return {.ranks = ranks, .stage = 3, .layers = 2, .width = 384};
}

}  // namespace

TEST_CASE("a step has the same collectives on any number of ranks, and waits for one", "[comm]") {
  const auto second_step = [](int ranks) {
    SimulatedRank rank(job_of(ranks), ranks / 2);
    rank.step();
    return rank.step().traffic;
  };
  const comm::SimulatedCounts few = second_step(kFew), many = second_step(kMany);
  CHECK(few.calls == many.calls);
  CHECK(many.blocking == 1);  // The device waits for one call: the sum of the gradient norm.
}

TEST_CASE("a lock is counted where it is taken") {
  if (!counts_locks()) {
    WARN("skipped: sanitizers have the functions that count locks");
    return;
  }
  std::mutex outer, inner;
  const LockTotals before = locks_of_this_thread();
  {
    const std::lock_guard a(outer);
    const std::lock_guard b(inner);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  std::thread([&] { const std::lock_guard other(outer); }).join();
  const LockTotals after = locks_of_this_thread();
  CHECK(after.taken - before.taken == 2);
  CHECK(after.seconds - before.seconds > 0.0019);
}

TEST_CASE("the locks that a step takes do not grow with the ranks", "[comm]") {
  const auto second_step = [](int ranks) {
    SimulatedRank rank(job_of(ranks), ranks / 2);
    rank.step();
    return rank.step();
  };
  const SimulatedCost few = second_step(kFew), many = second_step(kMany);
  CAPTURE(few.locks.taken, many.locks.taken, few.traffic.calls);
  CHECK(double(many.locks.taken) <= 1.1 * double(few.locks.taken));
}

TEST_CASE("a checkpoint of more ranks has more files, and no longer lists of them", "[comm]") {
  test::TempDir few_dir, many_dir;
  const SimulatedCheckpoint few = write_checkpoint(job_of(kFew), few_dir.path());
  const SimulatedCheckpoint many = write_checkpoint(job_of(kMany), many_dir.path());
  // The manifest has three values per file. Consecutive parts of a tensor share one entry of four
  // numbers.
  CHECK(many.manifest_values - few.manifest_values < 6 * (kMany - kFew));
  // A rank's record covers only that rank.
  CHECK(many.record_bytes / kMany <= few.record_bytes / kFew);

  // Rank 0 opens all files; every other rank opens only its own.
  CHECK(SimulatedRank(job_of(kMany), 0).resume(many.path).opens < kMany + 8);
  SimulatedRank rank(job_of(kMany), 1);
  CHECK(rank.resume(many.path).opens < 8);
  // Without sharding, rank 0 reads the checkpoint, and every other rank opens no file.
  SimulatedJob whole = job_of(kMany);
  whole.stage = 0;
  CHECK(SimulatedRank(whole, 1).resume(many.path).opens == 0);
  // While a rank saves, it receives little more than the folder's name.
  rank.step();
  CHECK(rank.save(many_dir.path()).traffic.received_bytes < 1024);
}

TEST_CASE("an export moves each unit once, to one rank", "[comm]") {
  for (const int ranks : {kFew, kMany}) {
    SimulatedRank rank(job_of(ranks), 1);
    const comm::SimulatedCounts traffic = rank.export_weights().traffic;
    CHECK(traffic.calls <= 8);
    CHECK(traffic.messages <= traffic.calls);
    // Besides the small buffers that one rank owns, a rank sends only its own shard.
    CHECK(traffic.sent_bytes < double(4 * rank.model_elements() / 16));
  }
}

TEST_CASE("a rank reads the rows of a stored model that it has a part of", "[comm]") {
  SimulatedRank rank(job_of(kMany), 1);
  // A rank's shard of a block may begin and end in the middle of a row.
  const int64_t cut = 2 * 1536;
  CHECK(rank.load_weights().read <= 2 * rank.model_elements() / kMany + 2 * cut);
}

TEST_CASE("what one rank has is summed to that rank, and its values come from there", "[comm]") {
  // These models are so small that one rank owns each whole buffer. The other traffic of a step
  // does not depend on the number of layers.
  const auto step_of = [](int layers) {
    SimulatedRank rank({.ranks = kMany, .stage = 1, .layers = layers, .width = 64}, 1);
    rank.step();
    return std::pair(4 * double(rank.gathered_elements()), rank.step().traffic.sent_bytes);
  };
  const auto [small, small_sent] = step_of(1);
  const auto [large, large_sent] = step_of(3);
  const double once = large - small, sent = large_sent - small_sent;
  CHECK(sent > 1.95 * once);
  CHECK(sent < 2.05 * once);
}

TEST_CASE("buffers are at most twice their parameters, on any number of ranks", "[comm]") {
  for (const int ranks : {kFew, kMany, 4096, 16384}) {
    const SimulatedRank rank(job_of(ranks), 1);
    CAPTURE(ranks);
    CHECK(rank.gathered_elements() < 2 * rank.model_elements());
  }
  CHECK(4 * SimulatedRank(job_of(kMany), 1).gathered_elements() <
        5 * SimulatedRank(job_of(kMany), 1).model_elements());
}

}  // namespace shale::bench
