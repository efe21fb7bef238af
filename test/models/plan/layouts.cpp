#include "shale/models/plan/time/layout_search.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "shale/base/config.h"
#include "shale/base/error.h"
#include "shale/base/gpu_model.h"
#include "shale/models/language/config.h"
#include "shale/models/language/task.h"
#include "shale/runtime/tensor/device_backend.h"
#include "shale/test/support/catch.h"

namespace shale::models {
namespace {

std::vector<PlannedLayout> layouts_of(int ranks) {
  TrainConfig config;
  config.language.layers = 3;
  config.run.threads = 1;
  config.run.micro_batch = 2;
  config.run.global_batch = 16;
  resolve(config, ranks);
  return plan_layouts(
      config.run, [&] { return std::make_unique<LanguageTask>(config); }, ranks);
}

const PlannedLayout* find(const std::vector<PlannedLayout>& layouts, std::string_view flags) {
  const auto is_it = [&](const PlannedLayout& layout) { return layout.flags == flags; };
  const auto found = std::find_if(layouts.begin(), layouts.end(), is_it);
  return found == layouts.end() ? nullptr : &*found;
}

// Number of ranks of a search in which the speed of links matters.
constexpr int kSearchRanks = 4;

struct Searched {
  double gbytes_per_s = 10;  // bandwidth of the network
  bool mixture = false;
  bool offload = false;  // the search also tries --offload
  CodedBits gather_bits = CodedBits::kNone;
};

TrainConfig searched_config(const Searched& of) {
  TrainConfig config;
  if (of.mixture) {
    config.language.model = "moe-nano";
    config.language.experts = 4;
    config.language.active_experts = 2;
  }
  config.language.layers = 2;
  config.language.width = 64;
  config.language.heads = 4;
  config.language.seq_len = 32;
  config.run.threads = 1;
  config.run.device = of.offload ? "cuda" : "cpu";
  config.run.micro_batch = 1;
  config.run.global_batch = of.offload ? 8 : 16;
  resolve(config, kSearchRanks);
  config.run.quantize_gathers = of.gather_bits;
  return config;
}

Cluster searched_cluster(const Searched& of) {
  return {.device = "device",
          .memory_bandwidth = 100e9,
          .flops_bf16 = 2e12,
          .flops_fp32 = 1e12,
          .launch_s = 1e-8,
          .overlap_tax = 0.1,
          .devices_per_node = 2,
          .node = {.bandwidth = 8 * of.gbytes_per_s * 1e9, .latency_s = 1e-7},
          .network = {.bandwidth = of.gbytes_per_s * 1e9, .latency_s = 1e-6},
          .host_bandwidth = of.offload ? 5e9 : 0,
          .host_memory_bandwidth = of.offload ? 40e9 : 0};
}

FoundLayouts search(const Cluster& cluster, const LayoutSearchOptions& options,
                    const Searched& of) {
  const TrainConfig config = searched_config(of);
  KernelTimes kernels(cluster);
  const PlanMachines machines{cluster, kernels};
  return search_layouts(
      config.run, [&] { return std::make_unique<LanguageTask>(config); }, kSearchRanks, machines,
      options);
}

// Returns true if the build has the emulator. Without it, the scratch memory of GPU kernels is not
// known.
bool emulates_gpus() {
  try {
    static_cast<void>(make_backend(emulated_device("emu:90")));
    return true;
  } catch (const UnavailableError&) {
    return false;
  }
}

// Checks a found layout against a full plan of every step of the run.
void check_whole_plan(const PlannedLayout& layout, const Cluster& cluster, const Searched& of) {
  CAPTURE(layout.flags);
  const TrainConfig config = searched_config(of);
  KernelTimes kernels(cluster);
  const PlanMachines machines{cluster, kernels};
  std::vector<TimedRank> stages;
  SampleUnit unit;
  int64_t reserved = 0;
  for (const int rank : first_ranks_of_stages(layout.config, kSearchRanks)) {
    LanguageTask task(config);
    unit = task.unit();
    stages.push_back(plan_time(layout.config, task, rank, kSearchRanks, machines));
    reserved = std::max(reserved, stages.back().memory.device.reserved);
  }
  const PlannedStep step = planned_step(layout.config, unit, cluster, stages, kSearchRanks);
  CHECK(layout.device.reserved == reserved);
  // A step ends with one copy per micro-batch (at most 16), of its loss of 4 bytes. The search
  // plans fewer micro-batches and thus fewer copies. Each copy takes at most 1.2 launches.
  const double copies = 16 * 1.2 * cluster.launch_s;
  CHECK(layout.step->seconds == Approx(step.seconds).epsilon(1e-6).margin(copies));
  CHECK(layout.step->products == Approx(step.products).epsilon(1e-6));
  CHECK(layout.step->exposed_data == Approx(step.exposed_data).epsilon(1e-6).margin(copies));
  CHECK(layout.step->bubble == Approx(step.bubble).epsilon(1e-6).margin(copies));
}

// Calls check_found() and returns the exit code and message of its error, or {0, ""}.
std::pair<int, std::string> ending_of(const FoundLayouts& found,
                                      const LayoutSearchOptions& options) {
  try {
    check_found(found, options, "search", "raise the limit");
    return {};
  } catch (const Error& error) {
    return {static_cast<int>(error.code()), error.what()};
  }
}

}  // namespace

TEST_CASE("bounds drop no layout that is among the fastest", "[plan]") {
  for (const Searched& of : {Searched{.gbytes_per_s = 0.1},
                             {.gbytes_per_s = 10},
                             {.gbytes_per_s = 0.1, .mixture = true},
                             {.gbytes_per_s = 10, .mixture = true},
                             {.gbytes_per_s = 10, .offload = true}}) {
    if (of.offload && !emulates_gpus()) continue;
    CAPTURE(of.gbytes_per_s, of.mixture, of.offload);
    const Cluster cluster = searched_cluster(of);
    const FoundLayouts all = search(cluster, {.top = 100'000, .exhaustive = true}, of);
    CHECK(all.slower == 0);
    CHECK(all.planned == std::ssize(all.best));
    const auto has_experts = [](const PlannedLayout& layout) { return layout.config.expert > 1; };
    CHECK(std::ranges::any_of(all.best, has_experts) == of.mixture);
    const auto has_offload = [](const PlannedLayout& layout) {
      return layout.config.offload != OffloadKind::kNone;
    };
    CHECK(std::ranges::any_of(all.best, has_offload) == of.offload);
    const auto is_folded = [&](const PlannedLayout& layout) {
      return has_experts(layout) && layout.config.tensor > 1 && layout.config.context > 1;
    };
    CHECK(std::ranges::any_of(all.best, is_folded) == of.mixture);
    for (size_t i = 0; i < all.best.size(); i += 11) {
      check_whole_plan(all.best[i], cluster, of);
    }
    std::vector<int64_t> held;
    for (const PlannedLayout& layout : all.best) held.push_back(layout.device.reserved);
    std::ranges::nth_element(held, held.begin() + std::ssize(held) / 3);
    for (const int64_t most_bytes : {int64_t{0}, held[held.size() / 3]}) {
      CAPTURE(most_bytes);
      std::vector<const PlannedLayout*> want;
      for (const PlannedLayout& layout : all.best) {
        if (most_bytes == 0 || layout.device.reserved <= most_bytes) want.push_back(&layout);
      }
      const FoundLayouts pruned = search(cluster, {.most_bytes = most_bytes, .top = 5}, of);
      REQUIRE(pruned.best.size() == 5);
      REQUIRE(want.size() > 5);
      for (size_t i = 0; i < 5; ++i) {
        CAPTURE(want[i]->flags, pruned.best[i].flags);
        CHECK(pruned.best[i].step->seconds == want[i]->step->seconds);
      }
      CHECK(pruned.slower > 0);
      CHECK(pruned.planned < all.planned);
      CHECK(pruned.candidates == all.candidates);
    }
  }
}

TEST_CASE("a search of few plans is within 2% of the best layout", "[plan]") {
  for (const Searched& of : {Searched{.gbytes_per_s = 0.1},
                             {.gbytes_per_s = 10},
                             {.gbytes_per_s = 0.1, .mixture = true},
                             {.gbytes_per_s = 10, .mixture = true}}) {
    CAPTURE(of.gbytes_per_s, of.mixture);
    const Cluster cluster = searched_cluster(of);
    const FoundLayouts all = search(cluster, {.top = 100'000, .exhaustive = true}, of);
    const FoundLayouts few = search(cluster, {.top = 1, .most_nodes = 24}, of);
    CHECK(few.planned + few.refused <= 24);
    CHECK(10 * few.planned < all.planned);
    REQUIRE(few.best.size() == 1);
    CAPTURE(few.best.front().flags, all.best.front().flags);
    CHECK(few.best.front().step->seconds <= 1.02 * all.best.front().step->seconds);
  }
}

TEST_CASE("a search that reaches its limit of plans is incomplete, and repeatable", "[plan]") {
  const Searched of{.gbytes_per_s = 10};
  const Cluster cluster = searched_cluster(of);
  const FoundLayouts all = search(cluster, {.top = 1}, of);
  REQUIRE(all.left == 0);
  CHECK(ending_of(all, {}).first == 0);

  int64_t calls = 0;
  const FoundLayouts few = search(
      cluster, {.top = 1, .most_nodes = 4, .progress = [&](const FoundLayouts&) { ++calls; }}, of);
  CHECK(calls > 0);
  CHECK(few.planned + few.refused == 4);
  REQUIRE(few.left > 0);
  CHECK(few.least_seconds <= all.best.front().step->seconds);
  CHECK(few.least_seconds <= few.likely_seconds);
  CHECK(few.candidates == all.candidates);
  // A planned layout that is too large counts as both, so the sum may exceed the number of
  // candidates.
  CHECK(few.left + few.planned + few.slower + few.too_large + few.refused >= few.candidates);
  REQUIRE(few.best.size() == 1);
  CHECK(ending_of(few, {}).first == 0);

  const FoundLayouts again = search(cluster, {.top = 1, .most_nodes = 4}, of);
  CHECK(again.best.front().flags == few.best.front().flags);
  CHECK(again.left == few.left);
  CHECK(again.slower == few.slower);
}

TEST_CASE("two short models bound as the whole one", "[plan]") {
  const Searched of{.gbytes_per_s = 10};
  const Cluster cluster = searched_cluster(of);
  KernelTimes kernels(cluster);
  const auto bound_with = [&](bool is_shorter, RunConfig layout) {
    TrainConfig config = searched_config(of);
    config.language.layers = 6;
    const MakeTask make_task = [&] { return std::make_unique<LanguageTask>(config); };
    MakeShorterTask make_shorter;
    if (is_shorter) {
      make_shorter = [&](int64_t layers) {
        TrainConfig shorter = config;
        shorter.language.layers = layers;
        return std::make_unique<LanguageTask>(shorter);
      };
    }
    LayoutBounds bounds(make_task, make_shorter, kSearchRanks, {cluster, kernels});
    resolve(layout, kSearchRanks);
    bounds.add(layout);
    static_cast<void>(bounds.coarse(layout));
    const LayoutBounds::Key key = LayoutBounds::key_of(layout);
    bounds.learn(key, bounds.rehearse(key));
    return bounds.fine(layout);
  };
  for (const Recompute level : {Recompute::kNone, Recompute::kFull}) {
    for (const int tensor : {1, 2}) {
      CAPTURE(int(level), tensor);
      RunConfig layout = searched_config(of).run;
      layout.recompute = level;
      layout.tensor = tensor;
      layout.zero = 1;
      const LayoutBound whole = bound_with(false, layout), shorter = bound_with(true, layout);
      CHECK(shorter.seconds == Approx(whole.seconds).epsilon(1e-3));
      CHECK(double(shorter.bytes) == Approx(double(whole.bytes)).epsilon(0.01));
    }
  }
}

TEST_CASE("no layout fits only if every one was evaluated or excluded by a bound", "[plan]") {
  const Searched of{.gbytes_per_s = 10};
  const Cluster cluster = searched_cluster(of);
  const FoundLayouts all = search(cluster, {.top = 100'000, .exhaustive = true}, of);
  int64_t least = all.best.front().device.reserved;
  for (const PlannedLayout& layout : all.best) least = std::min(least, layout.device.reserved);

  const LayoutSearchOptions bounded{.most_bytes = 1, .top = 1, .most_nodes = 1};
  const FoundLayouts excluded = search(cluster, bounded, of);
  CHECK(excluded.planned == 0);
  CHECK(excluded.too_large == excluded.candidates);
  CHECK(ending_of(excluded, bounded).first == int(ExitCode::kOutOfMemory));

  LayoutSearchOptions options{.most_bytes = least - 1, .top = 1};
  const FoundLayouts evaluated = search(cluster, options, of);
  CHECK(evaluated.planned > 0);
  CHECK(evaluated.left == 0);
  CHECK(ending_of(evaluated, options).first == int(ExitCode::kOutOfMemory));
  options.most_nodes = evaluated.planned - 1;
  const FoundLayouts cut_short = search(cluster, options, of);
  CHECK(cut_short.left > 0);
  CHECK(ending_of(cut_short, options).first == 1);
}

TEST_CASE("a layout is refused by its own plan alone", "[plan]") {
  // To bound a layout's time, the search does a dry run with --zero 0, which is incompatible with
  // these options.
  const Searched of{.gbytes_per_s = 10, .gather_bits = CodedBits::k8};
  const Cluster cluster = searched_cluster(of);
  const FoundLayouts found = search(cluster, {.top = 5}, of);
  REQUIRE(found.best.size() == 5);
  const FoundLayouts all = search(cluster, {.top = 5, .exhaustive = true}, of);
  CHECK(found.best.front().step->seconds == all.best.front().step->seconds);
}

TEST_CASE("layouts that are all refused are no lack of memory", "[plan]") {
  const Searched of{.gbytes_per_s = 10};
  const Cluster cluster = searched_cluster(of);
  TrainConfig config = searched_config(of);
  config.run.offload_ratio = 0.5;  // needs --offload, which a CPU search does not try
  KernelTimes kernels(cluster);
  const FoundLayouts found =
      search_layouts(config.run, [&] { return std::make_unique<LanguageTask>(config); },
                     kSearchRanks, {cluster, kernels}, {.top = 1});
  const auto [code, message] = ending_of(found, {});
  CHECK(code == int(ExitCode::kUsage));
  CHECK(test::contains(message, "--offload-ratio"));
}

TEST_CASE("layouts are what train_lm takes, the one that holds most first", "[plan]") {
  const std::vector<PlannedLayout> layouts = layouts_of(4);
  const auto holds_more = [](const PlannedLayout& a, const PlannedLayout& b) {
    return a.device.reserved > b.device.reserved;
  };
  CHECK(std::is_sorted(layouts.begin(), layouts.end(), holds_more));
  for (const char* flags :
       {"", "--zero 3 --recompute full --offload params", "--zero 1 --pipeline 4",
        "--pipeline 2 --recompute selective --offload optimizer"}) {
    CAPTURE(flags);
    CHECK(find(layouts, flags) != nullptr);
  }
  for (const char* flags : {"--zero 2 --pipeline 2", "--offload params", "--pipeline 8"}) {
    CAPTURE(flags);
    CHECK(find(layouts, flags) == nullptr);
  }
}

TEST_CASE("what is shared, computed again or offloaded is not needed on the device", "[plan]") {
  const std::vector<PlannedLayout> layouts = layouts_of(4);
  const auto in_use = [&](const char* flags) {
    const PlannedLayout* layout = find(layouts, flags);
    REQUIRE(layout != nullptr);
    return layout->device.allocated;
  };
  CHECK(in_use("--zero 1") < in_use(""));
  CHECK(in_use("--zero 2") <= in_use("--zero 1"));
  CHECK(in_use("--zero 3") < in_use("--zero 2"));
  CHECK(in_use("--recompute full") < in_use("--recompute selective"));
  CHECK(in_use("--recompute selective") < in_use(""));
  CHECK(in_use("--offload optimizer") < in_use(""));
  CHECK(find(layouts, "--offload optimizer")->host_bytes > 0);
  CHECK(find(layouts, "")->host_bytes == 0);
}

TEST_CASE("stages of a pipeline have a first rank each", "[plan]") {
  TrainConfig config;
  config.run.pipeline = 4;
  CHECK(first_ranks_of_stages(config.run, 8) == std::vector<int>{0, 2, 4, 6});
  config.run.pipeline = 1;
  CHECK(first_ranks_of_stages(config.run, 8) == std::vector<int>{0});
}

}  // namespace shale::models
