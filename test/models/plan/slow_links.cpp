// Tests plans for slow links: which steps get a dry run, and which method is faster on which link.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "shale/base/config.h"
#include "shale/models/language/config.h"
#include "shale/models/language/task.h"
#include "shale/models/plan/time/planned_step.h"
#include "shale/models/training/slow_links.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/fixtures.h"

namespace shale::models {
namespace {

using test::contains;

constexpr int kRanks = 4;

TrainConfig config_of(const std::string& flags) {
  std::vector<std::string> words = {"shale plan"};
  for (size_t begin = 0; begin < flags.size();) {
    const size_t end = std::min(flags.find(' ', begin), flags.size());
    words.push_back(flags.substr(begin, end - begin));
    begin = end + 1;
  }
  std::vector<const char*> argv;
  for (const std::string& word : words) argv.push_back(word.c_str());
  TrainConfig config;
  ConfigSpec spec("shale plan", "");
  describe(spec, config, /*needs_data=*/false);
  REQUIRE_FALSE(parse_config(spec, static_cast<int>(argv.size()), argv.data()).should_exit);
  config.run.device = "cpu";
  resolve(config, kRanks);
  return config;
}

// Two hosts of two ranks; ranks of a host share a core and a link.
Cluster cluster_of(double gbit_per_s) {
  return {.device = "half a core",
          .is_gpu = false,
          .memory_bandwidth = 8e9,
          .flops_bf16 = 80e9,
          .flops_fp32 = 80e9,
          .overlap_tax = 0.3,
          .devices_per_node = 2,
          .node = {.bandwidth = 4e9, .latency_s = 50e-6},
          .network = {.bandwidth = gbit_per_s * 1e9 / 8 / 2, .latency_s = 200e-6}};
}

// Mean step in seconds, and peak memory in bytes.
struct Planned {
  double seconds = 0;
  int64_t bytes = 0;
};

Planned plan_of(const TrainConfig& config, double gbit_per_s) {
  const Cluster cluster = cluster_of(gbit_per_s);
  KernelTimes kernels(cluster);
  const PlanMachines machines{cluster, kernels};
  LanguageTask task(config);
  const std::vector<TimedRank> stages = {plan_time(config.run, task, /*rank=*/0, kRanks, machines)};
  return {planned_step(config.run, task.unit(), cluster, stages, kRanks).seconds,
          stages[0].memory.device.allocated};
}

const std::string kModel =
    "--model llama-nano --vocab 32000 --seq-len 256 --micro-batch 1 --threads 1 --dtype fp32";

// Methods of bench/slow_links.sh, by their names on its page. With --freeze-step 1, all steps are
// after the freeze. With local steps, one step in ten is an outer step.
const std::map<std::string, std::string> kMethods = {
    {"AdamW", "--zero 1 --shard-ranks 2"},
    {"1-bit Adam", "--zero 1 --shard-ranks 2 --optimizer 1bit-adam --freeze-step 1"},
    {"local steps, 10", "--zero 1 --shard-ranks 2 --outer-every 10"},
    {"ZeRO-3", "--zero 3"},
    {"ZeRO-3, 8 and 4 bits", "--zero 3 --quantize-gathers 8 --quantize-reductions 4"}};

struct Row {
  double gbit_per_s = 0;
  std::string method;
  double tokens_per_s = 0;
};

// Returns the rows of bench/results/slow_links.md for the methods in kMethods.
std::vector<Row> measured_rows() {
  std::ifstream page(test::fixture_path("../../bench/results/slow_links.md"));
  std::vector<Row> rows;
  for (std::string line; std::getline(page, line);) {
    std::vector<std::string> cells;
    for (size_t begin = line.find("| "); begin != line.npos;) {
      const size_t end = line.find(" |", begin);
      if (end == line.npos) break;
      cells.push_back(line.substr(begin + 2, end - begin - 2));
      begin = end + 1;
    }
    if (cells.size() < 3 || !kMethods.contains(cells[1])) continue;
    rows.push_back({std::stod(cells[0]), cells[1], std::stod(cells[2])});
  }
  return rows;
}

}  // namespace

TEST_CASE("a plan knows how often each kind of step comes", "[plan]") {
  const auto shares = [](const std::string& flags) {
    std::vector<double> of_kinds;
    for (const StepKind& kind : step_kinds(config_of(kModel + " " + flags).run)) {
      of_kinds.push_back(kind.share);
    }
    return of_kinds;
  };
  const auto near = [](const std::vector<double>& got, const std::vector<double>& want) {
    return std::equal(got.begin(), got.end(), want.begin(), want.end(),
                      [](double a, double b) { return std::abs(a - b) < 1e-9; });
  };
  CHECK(near(shares("--zero 1"), {1}));
  CHECK(near(shares("--zero 1 --shard-ranks 2 --steps 200 --optimizer 1bit-adam"), {0.15, 0.85}));
  CHECK(near(shares("--zero 1 --shard-ranks 2 --steps 110 --outer-every 10 --outer-start 10"),
             {10.0 / 110, 90.0 / 110, 10.0 / 110}));
}

TEST_CASE("a plan knows the memory of steps that come after the freeze", "[plan]") {
  const std::string flags =
      kModel + " --zero 1 --shard-ranks 2 --optimizer 1bit-adam --freeze-step ";
  // The plan does not depend on the freeze step.
  CHECK(plan_of(config_of(flags + "500"), 1).bytes == plan_of(config_of(flags + "1"), 1).bytes);
}

TEST_CASE("a plan orders what spares slow links as measured", "[plan]") {
  const std::vector<Row> rows = measured_rows();
  REQUIRE(rows.size() >= 2 * kMethods.size());
  int compared = 0;
  for (const Row& slow : rows) {
    if (slow.gbit_per_s > 1) continue;
    const auto seconds_of = [&](const Row& row) {
      return plan_of(config_of(kModel + " " + kMethods.at(row.method)), row.gbit_per_s).seconds;
    };
    const double of_slow = seconds_of(slow);
    for (const Row& fast : rows) {
      // If measured speeds differ by less than this factor, the plan need not predict which method
      // is faster.
      constexpr double kApart = 1.25;
      const bool is_faster =
          fast.gbit_per_s == slow.gbit_per_s && fast.tokens_per_s > kApart * slow.tokens_per_s;
      if (!is_faster) continue;
      CAPTURE(slow.gbit_per_s, slow.method, fast.method, of_slow);
      CHECK(seconds_of(fast) < of_slow);
      ++compared;
    }
  }
  CHECK(compared >= 12);
}

}  // namespace shale::models
