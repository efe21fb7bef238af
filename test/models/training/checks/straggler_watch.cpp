#include "shale/models/training/checks/straggler_watch.h"

#include <chrono>

#include "shale/test/support/catch.h"

namespace shale::models {

TEST_CASE("a rank that works far longer than the median is named after three reports") {
  StragglerWatch watch;
  const std::vector<double> busy = {0.4, 0.4, 0.7, 0.41};
  for (int step = 0; step < 29; ++step) CHECK(watch.look(busy).empty());
  const auto warnings = watch.look(busy);
  REQUIRE(warnings.size() == 1);
  CHECK(test::contains(
      warnings.front(),
      "rank 2 holds up the other ranks, for 30 steps now: in the last 10 it worked 700 "
      "ms a step, the median rank 400 ms"));
  // The warning must be repeated after ten times as many steps, and not before.
  for (int step = 30; step < 299; ++step) CHECK(watch.look(busy).empty());
  CHECK(watch.look(busy).size() == 1);
}

TEST_CASE("of two ranks the slower one is named") {
  StragglerWatch watch({.steps = 1, .reports = 1});
  const auto warnings = watch.look(std::vector<double>{0.9, 0.3});
  REQUIRE(warnings.size() == 1);
  CHECK(warnings.front().find("rank 0 ") == 0);
}

TEST_CASE("ranks are compared with those of their stage, and named with their place") {
  StragglerWatch watch({.steps = 1,
                        .reports = 1,
                        .stages = {0, 0, 1, 1},
                        .places = {"pipeline 0, shard 0", "pipeline 0, shard 1",
                                   "pipeline 1, shard 0", "pipeline 1, shard 1"}});
  CHECK(watch.look(std::vector<double>{0.9, 0.9, 0.3, 0.3}).empty());
  const auto warnings = watch.look(std::vector<double>{0.9, 0.9, 0.3, 0.6});
  REQUIRE(warnings.size() == 1);
  CHECK(warnings.front().find("rank 3 (pipeline 1, shard 1) holds up") == 0);
}

TEST_CASE("steps that vary by chance name nobody, and a good report ends a row") {
  StragglerWatch watch({.steps = 2, .reports = 2});
  const std::vector<double> first = {0.9, 0.3, 0.4}, second = {0.3, 0.9, 0.4};
  for (int round = 0; round < 20; ++round) {
    CHECK(watch.look(first).empty());
    CHECK(watch.look(second).empty());
  }
  for (int round = 0; round < 20; ++round) {
    const bool slow = round % 2 == 0;
    CHECK(watch.look(slow ? first : second).empty());
    CHECK(watch.look(slow ? first : second).empty());
  }
  // The rank takes three times the median, but only 4 ms more.
  for (int step = 0; step < 10; ++step) {
    CHECK(watch.look(std::vector<double>{0.002, 0.006, 0.002}).empty());
  }
  CHECK(watch.look(std::vector<double>{1.0}).empty());
}

TEST_CASE("a report over 20,000 ranks takes milliseconds") {
  StragglerWatch watch({.steps = 1, .reports = 1});
  std::vector<double> busy(20'000, 0.4);
  busy[7] = 0.9;
  const auto begin = std::chrono::steady_clock::now();
  CHECK(watch.look(busy).size() == 1);
  // Computing a median for each rank would take 2 s.
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(500));
}

}  // namespace shale::models
