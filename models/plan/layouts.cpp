#include "shale/models/plan/layouts.h"

#include <algorithm>
#include <utility>

#include "shale/base/error.h"
#include "shale/models/training/parallel_setup.h"

namespace shale::models {
namespace {

constexpr std::pair<Recompute, const char*> kRecompute[] = {
    {Recompute::kNone, ""}, {Recompute::kSelective, "selective"}, {Recompute::kFull, "full"}};
constexpr std::pair<OffloadKind, const char*> kOffload[] = {{OffloadKind::kNone, ""},
                                                            {OffloadKind::kOptimizer, "optimizer"},
                                                            {OffloadKind::kParameters, "params"}};

// A plan of every stage is a plan of its own, and there are layouts of each number of stages.
constexpr int kMostStages = 16;

std::string with_flag(std::string flags, const char* name, const std::string& value) {
  if (value.empty()) return flags;
  return cat(flags, flags.empty() ? "--" : " --", name, " ", value);
}

// One combination; its flags say what is not the default.
struct Combination {
  RunConfig config;
  std::string flags;
};

std::vector<Combination> combinations(const RunConfig& config, int ranks) {
  std::vector<Combination> all;
  for (int zero = 0; zero <= 3; ++zero) {
    for (int pipeline = 1; pipeline <= std::min(ranks, kMostStages); pipeline *= 2) {
      for (const auto& [recompute, recompute_name] : kRecompute) {
        for (const auto& [offload, offload_name] : kOffload) {
          Combination next{.config = config};
          next.config.zero = zero;
          next.config.pipeline = pipeline;
          next.config.recompute = recompute;
          next.config.offload = offload;
          next.config.micro_batches = 0;  // what the global batch leaves
          next.config.device_memory = 0;
          next.flags = with_flag({}, "zero", zero > 0 ? std::to_string(zero) : "");
          next.flags =
              with_flag(next.flags, "pipeline", pipeline > 1 ? std::to_string(pipeline) : "");
          next.flags = with_flag(next.flags, "recompute", recompute_name);
          next.flags = with_flag(next.flags, "offload", offload_name);
          all.push_back(std::move(next));
        }
      }
    }
  }
  return all;
}

using MakeTask = std::function<std::unique_ptr<Task>()>;

PlannedLayout plan_combination(const Combination& of, const MakeTask& make_task, int ranks) {
  PlannedLayout layout{.flags = of.flags};
  for (const int rank : first_ranks_of_stages(of.config, ranks)) {
    const std::unique_ptr<Task> task = make_task();
    const RankMemory memory = plan_rank(of.config, *task, rank, ranks).memory;
    if (memory.device.reserved <= layout.device.reserved) continue;
    layout.device = memory.device;
    layout.host_bytes = memory.host ? memory.host->reserved : 0;
  }
  return layout;
}

// Whether train_lm would take it.
bool is_taken(Combination& combination, int ranks) {
  try {
    resolve(combination.config, ranks);
    return true;
  } catch (const ConfigError&) {
    return false;
  }
}

}  // namespace

std::vector<int> first_ranks_of_stages(const RunConfig& config, int ranks) {
  const comm::MeshLayout mesh = parallel_layout(config, ranks);
  std::vector<int> firsts;
  for (int rank = 0; rank < ranks; ++rank) {
    if (mesh.coordinate("pipeline", rank) == static_cast<int>(firsts.size())) {
      firsts.push_back(rank);
    }
  }
  return firsts;
}

std::vector<PlannedLayout> plan_layouts(const RunConfig& config, const MakeTask& make_task,
                                        int ranks) {
  std::vector<PlannedLayout> layouts;
  for (Combination& combination : combinations(config, ranks)) {
    if (!is_taken(combination, ranks)) continue;
    try {
      layouts.push_back(plan_combination(combination, make_task, ranks));
    } catch (const ConfigError&) {
      // The model has fewer pieces than stages, which shows only where it is cut.
    }
  }
  std::stable_sort(layouts.begin(), layouts.end(),
                   [](const PlannedLayout& a, const PlannedLayout& b) {
                     return a.device.reserved > b.device.reserved;
                   });
  return layouts;
}

}  // namespace shale::models
