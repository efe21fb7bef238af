#include "shale/models/plan/time/layouts.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <utility>

#include "shale/base/error.h"

namespace shale::models {
namespace {

// Maximum number of pipeline stages to plan, because each stage of each layout needs its own plan.
constexpr int kMostStages = 16;

// Value of an option as number and as text. An empty text means the default, so no flag is given.
struct Choice {
  std::string text;
  std::function<void(RunConfig&)> set;
};
struct Axis {
  const char* option;
  std::vector<Choice> choices;
};

// Returns the choices 1, 2, 4, ... up to `most`.
Axis powers_of_two(const char* option, int most, int RunConfig::*field) {
  Axis axis{.option = option};
  for (int value = 1; value <= most; value *= 2) {
    axis.choices.push_back({value > 1 ? std::to_string(value) : "",
                            [=](RunConfig& config) { config.*field = value; }});
  }
  return axis;
}

template <typename T>
Axis named(const char* option, std::vector<std::pair<T, const char*>> values, T RunConfig::*field) {
  Axis axis{.option = option};
  for (const auto& [value, text] : values) {
    axis.choices.push_back(
        {text, [=, value = value](RunConfig& config) { config.*field = value; }});
  }
  return axis;
}

std::vector<Axis> axes_of(int ranks) {
  std::vector<Axis> axes;
  axes.push_back(named<int>("zero", {{0, ""}, {1, "1"}, {2, "2"}, {3, "3"}}, &RunConfig::zero));
  axes.push_back(powers_of_two("pipeline", std::min(ranks, kMostStages), &RunConfig::pipeline));
  axes.push_back(named<Recompute>(
      "recompute",
      {{Recompute::kNone, ""}, {Recompute::kSelective, "selective"}, {Recompute::kFull, "full"}},
      &RunConfig::recompute));
  axes.push_back(named<OffloadKind>("offload",
                                    {{OffloadKind::kNone, ""},
                                     {OffloadKind::kOptimizer, "optimizer"},
                                     {OffloadKind::kParameters, "params"}},
                                    &RunConfig::offload));
  return axes;
}

// Combination of options, with the flags that differ from their defaults.
struct Combination {
  RunConfig config;
  std::string flags;
};

// Returns `start` with every combination of the axes' choices.
std::vector<Combination> combinations(const Combination& start, std::span<const Axis> axes) {
  if (axes.empty()) return {start};
  std::vector<Combination> all;
  for (const Choice& choice : axes.front().choices) {
    Combination next = start;
    choice.set(next.config);
    if (!choice.text.empty()) {
      next.flags += cat(next.flags.empty() ? "--" : " --", axes.front().option, " ", choice.text);
    }
    std::ranges::move(combinations(next, axes.subspan(1)), std::back_inserter(all));
  }
  return all;
}

PlannedLayout plan_combination(const Combination& of, const MakeTask& make_task, int ranks) {
  PlannedLayout layout{.flags = of.flags, .config = of.config};
  for (const TimedRank& stage : plan_stages(of.config, make_task, ranks, /*machines=*/nullptr)) {
    const RankMemory& memory = stage.memory;
    if (memory.device.reserved <= layout.device.reserved) continue;
    layout.device = memory.device;
    layout.host_bytes = memory.host ? memory.host->reserved : 0;
  }
  return layout;
}

// Returns true if train_lm accepts the combination.
bool is_taken(Combination& combination, int ranks) {
  try {
    resolve(combination.config, ranks);
    return true;
  } catch (const ConfigError&) {
    return false;
  }
}

}  // namespace

std::vector<PlannedLayout> plan_layouts(const RunConfig& config, const MakeTask& make_task,
                                        int ranks) {
  Combination start{.config = config};
  start.config.ranks_per_process = 1;
  start.config.device_memory = 0;
  std::vector<PlannedLayout> layouts;
  for (Combination& combination : combinations(start, axes_of(ranks))) {
    if (!is_taken(combination, ranks)) continue;
    try {
      layouts.push_back(plan_combination(combination, make_task, ranks));
    } catch (const ConfigError&) {
      // The model has fewer pieces than stages. Only splitting the model detects that.
    }
  }
  std::ranges::stable_sort(layouts, [](const PlannedLayout& a, const PlannedLayout& b) {
    return a.device.reserved > b.device.reserved;
  });
  return layouts;
}

}  // namespace shale::models
