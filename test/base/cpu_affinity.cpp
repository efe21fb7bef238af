#include "shale/base/cpu_affinity.h"

#include <sched.h>

#include <thread>

#include "shale/base/error.h"
#include "shale/test/support/catch.h"

namespace shale {

using test::contains;
using test::message_of;

TEST_CASE("the default is the mask, but at most the rank's share of the node", "[affinity]") {
  // Columns: ranks, CPUs in the mask (bound), CPUs of the node, expected threads per rank.
  const auto [ranks, bound, node, threads] = GENERATE(table<int, int, int, int>({
      {1, 8, 8, 8},    // started without a launcher
      {1, 1, 8, 1},    // mpirun -np 1 binds to a core
      {2, 1, 2, 1},    // mpirun -np 2 also binds each rank to a core
      {2, 8, 8, 4},    // mpirun --bind-to none
      {3, 8, 8, 2},    // the CPUs cannot be divided evenly
      {8, 32, 64, 8},  // bound to a socket that four ranks share
      {4, 2, 2, 1},    // more ranks than CPUs
      {1, 4, 64, 4},   // taskset allows four CPUs
  }));
  CAPTURE(ranks, bound, node);
  const ThreadPlan plan = plan_threads(0, ranks, {.bound = bound, .node = node});
  CHECK(plan.threads == threads);
  CHECK_FALSE(plan.widen);
}

TEST_CASE("a request within the mask is granted as it is", "[affinity]") {
  const ThreadPlan plan = plan_threads(3, 4, {.bound = 4, .node = 4});
  CHECK(plan.threads == 3);
  CHECK_FALSE(plan.widen);
}

TEST_CASE("a request above the mask widens it up to the rank's share", "[affinity]") {
  const ThreadPlan plan = plan_threads(4, 2, {.bound = 1, .node = 8});
  CHECK(plan.threads == 4);
  CHECK(plan.widen);
}

TEST_CASE("a request above the share is an error with the way out", "[affinity]") {
  const std::string message =
      message_of<ConfigError>([] { plan_threads(2, 2, {.bound = 1, .node = 2}); });
  CHECK(contains(message, "--threads: expected at most 1 threads, found 2"));
  CHECK(contains(message, "1 of the node's 2 CPUs"));
  CHECK(contains(message, "2 ranks"));
  CHECK(contains(message, "--bind-to none"));
  CHECK_THROWS_AS(plan_threads(9, 1, {.bound = 8, .node = 8}), ConfigError);
  CHECK_THROWS_AS(plan_threads(-1, 1, {.bound = 8, .node = 8}), ConfigError);
  CHECK_THROWS_AS(plan_threads(1, 0, {.bound = 8, .node = 8}), ConfigError);
}

TEST_CASE("a narrowed mask is seen, left alone, and widened on request", "[affinity]") {
  // Runs on a separate thread, because a thread's affinity mask persists.
  std::thread([] {
    const CpuCounts whole = cpu_counts();
    CHECK(whole.bound >= 1);
    CHECK(whole.node >= whole.bound);
    if (whole.bound < 2) {
      WARN("skipped: one CPU cannot be narrowed");
      return;
    }
    cpu_set_t mask;
    REQUIRE(sched_getaffinity(0, sizeof mask, &mask) == 0);
    int first = 0;
    while (!CPU_ISSET(first, &mask)) ++first;
    CPU_ZERO(&mask);
    CPU_SET(first, &mask);
    REQUIRE(sched_setaffinity(0, sizeof mask, &mask) == 0);

    const CpuCounts narrow = cpu_counts();
    CHECK(narrow.bound == 1);
    CHECK(narrow.node == whole.node);
    CHECK(resolve_threads(0, 1) == 1);
    CHECK(cpu_counts().bound == 1);
    CHECK(resolve_threads(2, 1) == 2);
    CHECK(cpu_counts().bound == whole.node);
    CHECK_THROWS_AS(resolve_threads(whole.node + 1, 1), ConfigError);
  }).join();
}

TEST_CASE("a thread stays beside its GPU where CPUs are enough", "[affinity]") {
  std::thread([] {
    cpu_set_t mask;
    REQUIRE(sched_getaffinity(0, sizeof mask, &mask) == 0);
    std::vector<int> allowed;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &mask)) allowed.push_back(cpu);
    }
    const int all = static_cast<int>(allowed.size());
    CHECK_FALSE(bind_to_cpus({}, 1, 1));
    CHECK_FALSE(bind_to_cpus({16383}, 1, 1));  // the process may not use this CPU
    CHECK_FALSE(bind_to_cpus(allowed, 1, 1));  // the mask would not change
    CHECK_FALSE(bind_to_cpus({allowed[0]}, 2, 1));
    CHECK(cpu_counts().bound == all);
    if (all < 2) {
      WARN("skipped: one CPU cannot be narrowed");
      return;
    }
    CHECK_FALSE(bind_to_cpus({allowed[0]}, 1, 1));  // one CPU for all ranks is too few
    CHECK(bind_to_cpus({allowed[0], 16383}, 1, all));
    CHECK(cpu_counts().bound == 1);
  }).join();
}

}  // namespace shale
