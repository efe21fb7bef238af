#include "shale/models/plan/remedies.h"

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "shale/base/error.h"
#include "shale/models/language/preference_task.h"
#include "shale/models/plan/plan_rank.h"

namespace shale::models {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostAlternatives = 3;

// Share of a GPU's limit left free, as a plan does not include all memory of a GPU (plan_rank.h).
constexpr double kUnknownOfGpus = 0.05;

struct Change {
  std::string flags;
  std::function<void(TrainConfig&)> apply;
};
using Strengths = std::vector<Change>;  // settings of one option, the weakest first

Strengths recomputation(const TrainConfig& config) {
  Strengths result;
  const auto level = [&](const char* name, Recompute value) {
    if (config.run.recompute >= value) return;
    result.push_back({cat("--recompute ", name), [value](auto& c) { c.run.recompute = value; }});
  };
  level("selective", Recompute::kSelective);
  level("full", Recompute::kFull);
  return result;
}

Strengths stages(const TrainConfig& config, int ranks) {
  Strengths result;
  const int most = config.run.pipeline > 1 ? 1 : 3;
  for (int stage = config.run.zero + 1; ranks > 1 && stage <= most; ++stage) {
    if (stage < 2 || config.run.no_overlap) {
      result.push_back({cat("--zero ", stage), [stage](auto& c) { c.run.zero = stage; }});
      continue;
    }
    // With overlap, a gradient is freed when its reduction ends, which may be later than planned.
    result.push_back({cat("--zero ", stage, " --no-overlap"), [stage](auto& c) {
                        c.run.zero = stage;
                        c.run.no_overlap = true;
                      }});
  }
  return result;
}

// Offloads to memory that the budget does not count. A CPU without a budget has no other memory.
Strengths offload(const TrainConfig& config) {
  const bool has_other_memory = config.run.device != "cpu" || config.run.device_memory > 0;
  if (config.run.offload != OffloadKind::kNone || !has_other_memory) return {};
  return {{"--offload optimizer", [](auto& c) { c.run.offload = OffloadKind::kOptimizer; }}};
}

Strengths micro_batches(const TrainConfig& config) {
  Strengths result;
  for (int64_t size = config.run.micro_batch / 2; size > 0; size /= 2) {
    if (config.run.micro_batch % size != 0) continue;
    result.push_back({cat("--micro-batch ", size, " --global-batch ", config.run.global_batch),
                      [size](auto& c) { c.run.micro_batch = size; }});
  }
  return result;
}

Strengths states(const TrainConfig& config) {
  if (config.run.optimizer != OptimizerKind::kAdamW) return {};
  return {{"--optimizer adamw-8bit", [](auto& c) { c.run.optimizer = OptimizerKind::kAdamW8bit; }}};
}

Strengths precision(const TrainConfig& config) {
  const bool is_bf16 = config.run.device == "cuda" && config.run.dtype == Precision::kAuto;
  const bool is_narrow =
      config.run.dtype != Precision::kAuto && config.run.dtype != Precision::kF32;
  if (is_bf16 || is_narrow) return {};
  return {{"--dtype bf16", [](auto& c) { c.run.dtype = Precision::kBF16; }}};
}

class Planner {
 public:
  Planner(const TrainConfig& config, int rank, int ranks, int64_t limit_bytes)
      : config_(config), rank_(rank), ranks_(ranks), limit_bytes_(limit_bytes) {
    config_.run.memory_profile.clear();
    config_.language.source.validate = false;
  }
  const TrainConfig& config() const { return config_; }

  // Returns the rank's peak memory without a limit.
  int64_t free_bytes(TrainConfig config) const {
    config.run.device_memory = 0;
    resolve(config, ranks_);
    return bytes_of(config);
  }

  // Returns the rank's peak memory within the limit, as allocators free cached memory before they
  // fail; nothing if that is not enough or the options are incompatible.
  std::optional<int64_t> fitting_bytes(const TrainConfig& config) const {
    return within(limit_bytes_, config);
  }

  // The strongest setting of an option that is compatible with the other options, and the rank's
  // memory with that setting, within the limit if possible.
  struct Strongest {
    const Change* change;
    TrainConfig config;
    int64_t bytes;
    bool fits;
  };
  std::optional<Strongest> strongest(const Strengths& option, const TrainConfig& others) const {
    for (auto change = option.rbegin(); change != option.rend(); ++change) {
      TrainConfig config = others;
      change->apply(config);
      const auto fitting = within(limit_bytes_, config);
      const auto bytes = fitting ? fitting : within(0, config);
      if (bytes) return Strongest{&*change, std::move(config), *bytes, fitting.has_value()};
    }
    return std::nullopt;
  }

 private:
  std::optional<int64_t> within(int64_t limit_bytes, TrainConfig config) const {
    config.run.device_memory = limit_bytes;
    try {
      resolve(config, ranks_);
      return bytes_of(config);
    } catch (const OutOfMemoryError&) {
      return std::nullopt;
    } catch (const ConfigError&) {
      return std::nullopt;
    }
  }

  int64_t bytes_of(const TrainConfig& config) const {
    const std::unique_ptr<LanguageTask> task = make_language_task(config);
    return plan_rank(config.run, *task, rank_, ranks_).memory.device.reserved;
  }

  TrainConfig config_;
  int rank_, ranks_;
  int64_t limit_bytes_;
};

}  // namespace

Remedies find_remedies(const TrainConfig& config, int rank, int ranks, int64_t limit_bytes,
                       double most_seconds) {
  const auto end = Clock::now() + std::chrono::duration<double>(most_seconds);
  const double known = config.run.device == "cpu" ? 1 : 1 - kUnknownOfGpus;
  const Planner planner(config, rank, ranks,
                        static_cast<int64_t>(known * static_cast<double>(limit_bytes)));
  Remedies found;
  found.planned_bytes = planner.free_bytes(planner.config());
  found.fits = planner.fitting_bytes(planner.config()).has_value();
  if (found.fits) return found;
  TrainConfig together = planner.config();
  for (const Strengths& option : {recomputation(config), stages(config, ranks), offload(config),
                                  micro_batches(config), states(config), precision(config)}) {
    for (const Change& change : option) {
      if (found.alternatives.size() == kMostAlternatives) return found;
      found.is_cut_short = Clock::now() > end;
      if (found.is_cut_short) return found;
      TrainConfig changed = planner.config();
      change.apply(changed);
      const auto bytes = planner.fitting_bytes(changed);
      if (!bytes) continue;
      found.alternatives.push_back({change.flags, *bytes});
      break;
    }
    if (!found.alternatives.empty() || found.together_fits) continue;
    const auto more = planner.strongest(option, together);
    if (!more) continue;
    together = more->config;
    found.together.flags += cat(found.together.flags.empty() ? "" : " ", more->change->flags);
    found.together.bytes = more->bytes;
    found.together_fits = more->fits;
  }
  return found;
}

std::string describe(const Remedies& remedies, int64_t limit_bytes) {
  const auto size = [](int64_t bytes) { return format_bytes(static_cast<double>(bytes)); };
  if (remedies.fits) {
    return cat("the plan of this run needs ", size(remedies.planned_bytes), " of the ",
               size(limit_bytes), "; other memory of the device was in use by something else");
  }
  const std::string unknown =
      remedies.is_cut_short ? "; not all options were planned, for lack of time" : "";
  const std::string wanted =
      cat("this run needs ", size(remedies.planned_bytes), " per rank, found ", size(limit_bytes));
  if (!remedies.alternatives.empty()) {
    std::string text = cat(wanted, "; each of these options is enough:");
    for (const Remedy& remedy : remedies.alternatives) {
      text += cat("\n  ", remedy.flags, " (", size(remedy.bytes), ")");
    }
    return text;
  }
  if (remedies.together.flags.empty()) return wanted + unknown;
  return cat(
      wanted,
      remedies.together_fits ? "; these options together are enough: " : "; not enough even with: ",
      remedies.together.flags, " (", size(remedies.together.bytes), ")",
      remedies.together_fits ? "" : unknown);
}

}  // namespace shale::models
