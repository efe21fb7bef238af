#include "shale/comm/watch/issued_calls.h"

#include <chrono>
#include <numeric>

#include "shale/base/error.h"
#include "shale/comm/sums/slices.h"
#include "shale/test/support/catch.h"

namespace shale::test {
namespace {

using comm::CollectiveOp;
using comm::Fingerprint;
using comm::IssuedCalls;
using comm::Progress;

struct Rank {
  IssuedCalls calls;
  Progress progress;
  void issue(int64_t count, uint64_t balance = 0) {
    calls.add({.sequence = progress.issued,
               .count = count,
               .balance = balance,
               .op = CollectiveOp::kAllReduceSum},
              progress);
  }
};

std::vector<int> numbered(size_t ranks) {
  std::vector<int> all(ranks);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

double seconds_of(const Rank& rank, const std::vector<Progress>& seen) {
  const std::vector<int> names = numbered(seen.size());
  double least = 1;
  for (int repeat = 0; repeat < 20; ++repeat) {
    const auto start = std::chrono::steady_clock::now();
    REQUIRE(rank.calls.disagreement(seen, names).empty());
    least = std::min(
        least, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return least;
}

}  // namespace

TEST_CASE("a rank that issued another collective is named, wherever the others are") {
  Rank mine, other;
  for (int i = 0; i < 100; ++i) {
    mine.issue(i);
    other.issue(i == 40 ? 7 : i);
    const std::vector<Progress> seen = {mine.progress, other.progress};
    const std::string text = mine.calls.disagreement(seen, std::vector<int>{3, 5});
    CAPTURE(i, text);
    if (i < 40) {
      CHECK(text.empty());
    } else {
      CHECK(contains(text, cat("the first ", i + 1, " collectives of rank 5 differ from those")));
    }
  }
}

TEST_CASE("ranks ahead, and ranks further behind than what is kept, are not compared") {
  Rank mine, other;
  other.issue(7);  // this call differs from the other rank's
  const Progress early = other.progress;
  for (size_t i = 0; i < IssuedCalls::kKept; ++i) mine.issue(1);
  CHECK_FALSE(mine.calls.disagreement(std::vector{early}, std::vector{1}).empty());
  mine.issue(1);
  CHECK(mine.calls.disagreement(std::vector{early}, std::vector{1}).empty());
  Rank late;
  late.issue(1);
  CHECK(late.calls.disagreement(std::vector{mine.progress}, std::vector{0}).empty());
}

TEST_CASE("counts that do not fit are found when all ranks have issued equally many") {
  const std::vector<int64_t> given = {0, 3}, expected = {0, 4}, none = {0, 0};
  for (const bool fit : {true, false}) {
    Rank a, b;
    a.issue(0, comm::pair_balance(0, given, none));
    const std::vector<int64_t> theirs = {fit ? 3 : 4, 0};
    CHECK(a.calls.disagreement(std::vector{a.progress, b.progress}, std::vector{0, 1}).empty());
    b.issue(0, comm::pair_balance(1, none, theirs));
    const std::string text =
        a.calls.disagreement(std::vector{a.progress, b.progress}, std::vector{0, 1});
    CHECK(text.empty() == fit);
  }
}

TEST_CASE("what a beat looks at does not grow with the history") {
  // The last call of these ranks is the oldest one in this rank's history, so a linear search would
  // find it last.
  constexpr size_t kRanks = 4096;
  Rank few, many;
  for (int i = 0; i < 16; ++i) few.issue(i);
  for (size_t i = 0; i < IssuedCalls::kKept; ++i) many.issue(1);
  const double short_s = seconds_of(few, std::vector<Progress>(kRanks, few.progress));
  const double long_s = seconds_of(many, std::vector<Progress>(kRanks, many.progress));
  CAPTURE(short_s, long_s);
  // With a linear search, the long history would take 256 times as long.
  CHECK(long_s < 10 * short_s + 1e-4);
}

}  // namespace shale::test
