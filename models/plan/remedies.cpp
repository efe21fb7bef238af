#include "shale/models/plan/remedies.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "shale/base/error.h"
#include "shale/models/plan/plan_rank.h"
#include "shale/models/training/parallel_setup.h"

namespace shale::models {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostAlternatives = 3;

// Bytes assumed for a run whose plan exceeds the address space.
constexpr int64_t kBeyondAddresses = int64_t{1} << 46;

// Fraction of a GPU's memory limit to leave free, because a plan does not include all memory of a
// GPU (plan_rank.h).
constexpr double kUnknownOfGpus = 0.05;

struct Change {
  std::string flags;
  std::function<void(RunConfig&)> apply;
};
using Strengths = std::vector<Change>;  // settings of one option, the weakest first

Strengths recomputation(const RunConfig& config) {
  Strengths result;
  const auto level = [&](const char* name, Recompute value) {
    if (config.recompute >= value) return;
    result.push_back({cat("--recompute ", name), [value](auto& c) { c.recompute = value; }});
  };
  level("selective", Recompute::kSelective);
  level("full", Recompute::kFull);
  return result;
}

Strengths stages(const RunConfig& config, int ranks) {
  Strengths result;
  const int most = config.pipeline > 1 ? 1 : 3;
  for (int stage = config.zero + 1; ranks > 1 && stage <= most; ++stage) {
    if (stage < 2 || config.no_overlap) {
      result.push_back({cat("--zero ", stage), [stage](auto& c) { c.zero = stage; }});
      continue;
    }
    // With overlap, a gradient is freed when its reduction ends, which may be later than planned.
    result.push_back({cat("--zero ", stage, " --no-overlap"), [stage](auto& c) {
                        c.zero = stage;
                        c.no_overlap = true;
                      }});
  }
  return result;
}

// Returns --offload optimizer if it moves optimizer states to other memory. On a CPU without
// --device-memory there is none.
Strengths offload(const RunConfig& config, MemoryPool pool) {
  const bool has_other_memory =
      pool == MemoryPool::kDevice && (config.device != "cpu" || config.device_memory > 0);
  if (config.offload != OffloadKind::kNone || !has_other_memory) return {};
  return {{"--offload optimizer", [](auto& c) { c.offload = OffloadKind::kOptimizer; }}};
}

// Returns smaller micro-batches, all divisors of the present one, the largest first. Starts with
// the largest size that can fit: the samples need at least `beyond` bytes, so `size` samples need
// at least beyond * size / micro_batch, which must not exceed the limit.
Strengths micro_batches(const RunConfig& config, int64_t planned_bytes, int64_t limit_bytes) {
  const double beyond = static_cast<double>(planned_bytes - limit_bytes);
  const double most = static_cast<double>(config.micro_batch) * static_cast<double>(limit_bytes);
  int64_t size = config.micro_batch / 2;
  if (beyond > 0 && most / beyond < static_cast<double>(size)) {
    size = std::max<int64_t>(static_cast<int64_t>(most / beyond), 1);
  }
  Strengths result;
  for (; size > 0; size /= 2) {
    while (config.micro_batch % size != 0) --size;
    result.push_back({cat("--micro-batch ", size, " --global-batch ", config.global_batch),
                      [size](auto& c) { c.micro_batch = size; }});
  }
  return result;
}

Strengths states(const RunConfig& config) {
  if (config.optimizer != OptimizerKind::kAdamW) return {};
  return {{"--optimizer adamw-8bit", [](auto& c) { c.optimizer = OptimizerKind::kAdamW8bit; }}};
}

Strengths precision(const RunConfig& config) {
  const bool is_bf16 = config.device == "cuda" && config.dtype == Precision::kAuto;
  const bool is_narrow = config.dtype != Precision::kAuto && config.dtype != Precision::kF32;
  if (is_bf16 || is_narrow) return {};
  return {{"--dtype bf16", [](auto& c) { c.dtype = Precision::kBF16; }}};
}

class Planner {
 public:
  Planner(const PlannedRun& planned, MemoryPool pool, int64_t limit_bytes)
      : planned_(planned), pool_(pool), limit_bytes_(limit_bytes) {}

  // Returns the memory that the rank needs if there is no limit.
  int64_t free_bytes(RunConfig run) const {
    run.device_memory = 0;
    return needs(std::move(run)).in(pool_);
  }

  // Returns the memory that the rank needs under the limit, at which allocators free cached memory
  // before they fail. Returns nothing if the limit is too small or the options are incompatible.
  std::optional<int64_t> fitting_bytes(const RunConfig& run) const {
    return within(limit_bytes_, run);
  }

  // Strongest setting of an option that is compatible with the other options. bytes: memory that
  // the rank needs with it, under the limit if `fits`.
  struct Strongest {
    const Change* change;
    RunConfig run;
    int64_t bytes;
    bool fits;
  };
  std::optional<Strongest> strongest(const Strengths& option, const RunConfig& others) const {
    for (auto change = option.rbegin(); change != option.rend(); ++change) {
      RunConfig run = others;
      change->apply(run);
      const auto fitting = within(limit_bytes_, run);
      const auto bytes = fitting ? fitting : within(0, run);
      if (bytes) return Strongest{&*change, std::move(run), *bytes, fitting.has_value()};
    }
    return std::nullopt;
  }

 private:
  std::optional<int64_t> within(int64_t limit_bytes, RunConfig run) const {
    const bool counts_device = pool_ == MemoryPool::kDevice || run.device != "cuda";
    run.device_memory = counts_device ? limit_bytes : 0;
    try {
      MemoryNeeds found = needs(run);
      if (limit_bytes == 0 || found.in(pool_) <= limit_bytes) return found.in(pool_);
      // On a CPU, device memory and the rest of host memory have one limit together.
      run.device_memory = limit_bytes - (found.host - found.device);
      if (!counts_device || run.device_memory <= 0) return std::nullopt;
      found = needs(run);
      return found.in(pool_) <= limit_bytes ? std::optional(found.in(pool_)) : std::nullopt;
    } catch (const OutOfMemoryError&) {
      return std::nullopt;
    } catch (const ConfigError&) {
      return std::nullopt;
    }
  }

  MemoryNeeds needs(RunConfig run) const {
    PlannedRun changed = planned_;
    changed.resolve(run);
    changed.run = std::move(run);
    return memory_needs(changed);
  }

  const PlannedRun& planned_;
  const MemoryPool pool_;
  const int64_t limit_bytes_;
};

// Reduces the global batch to the micro-batches that affect a rank's peak memory.
void shorten(RunConfig& run, int64_t data_ranks) {
  if (run.pipeline > 1 && run.pipeline_schedule == comm::ScheduleKind::kGpipe) return;
  const int64_t most = run.pipeline > 1 ? 4 * run.pipeline : run.reproducible ? 64 : 2;
  run.global_batch = std::min(run.global_batch, most * run.micro_batch * data_ranks);
}

MemoryNeeds plan_needs(const PlannedRun& planned) {
  RunConfig run = planned.run;
  run.trace.clear();
  run.eval_every = 0;
  run.offload_folder.clear();
  shorten(run, data_ranks(run, parallel_layout(run, planned.ranks), planned.rank).count);
  const std::unique_ptr<Task> task = planned.task.twin(run);
  PlannedRank found;
  try {
    found = plan_rank(run, *task, planned.rank, planned.ranks, /*clock=*/nullptr,
                      /*lists_memory=*/false);
  } catch (const OutOfMemoryError&) {
    if (run.device_memory > 0) throw;
    return {.device = kBeyondAddresses, .host = kBeyondAddresses};
  }
  MemoryNeeds needs{.device = found.memory.device.reserved,
                    .host = found.batch_bytes * (run.workers + 2)};
  if (run.device != "cuda") needs.host += needs.device;
  if (!run.no_save) needs.host += found.checkpoint_bytes;
  const bool is_on_disk = !planned.run.offload_folder.empty();
  if (found.memory.host && !is_on_disk) needs.host += found.memory.host->reserved;
  return needs;
}

}  // namespace

// Extrapolates to large micro-batches. A rank's memory grows linearly with its micro-batch, and
// plans of large micro-batches take long if layers loop over the samples.
MemoryNeeds memory_needs(const PlannedRun& planned) {
  const RunConfig& run = planned.run;
  const int64_t few = 512 * run.tensor, many = 2 * few;
  if (run.micro_batch <= many) return plan_needs(planned);
  const auto with = [&](int64_t samples) {
    PlannedRun other = planned;
    other.run.device_memory = 0;
    other.run.global_batch = run.global_batch / run.micro_batch * samples;
    other.run.micro_batch = samples;
    return plan_needs(other);
  };
  const MemoryNeeds less = with(few), more = with(many);
  const double steps = static_cast<double>(run.micro_batch - many) / static_cast<double>(few);
  const auto bytes = [&](int64_t with_few, int64_t with_many) {
    const double all = static_cast<double>(with_many) + steps * double(with_many - with_few);
    return static_cast<int64_t>(std::min(all, double(kBeyondAddresses)));
  };
  const MemoryNeeds needs{.device = bytes(less.device, more.device),
                          .host = bytes(less.host, more.host)};
  if (run.device_memory == 0 || needs.device <= run.device_memory) return needs;
  throw OutOfMemoryError("plan: the run needs more memory than --device-memory");
}

Remedies find_remedies(const PlannedRun& planned, MemoryPool pool, int64_t limit_bytes,
                       double most_seconds) {
  const auto end = Clock::now() + std::chrono::duration<double>(most_seconds);
  const RunConfig& config = planned.run;
  const bool is_known = config.device == "cpu" || pool == MemoryPool::kHost;
  const auto limit =
      static_cast<int64_t>((is_known ? 1 : 1 - kUnknownOfGpus) * static_cast<double>(limit_bytes));
  const Planner planner(planned, pool, limit);
  Remedies found;
  found.planned_bytes = planner.free_bytes(config);
  found.fits = planner.fitting_bytes(config).has_value();
  if (found.fits) return found;
  RunConfig together = config;
  for (const Strengths& option :
       {recomputation(config), stages(config, planned.ranks), offload(config, pool),
        micro_batches(config, found.planned_bytes, limit), states(config), precision(config)}) {
    for (const Change& change : option) {
      if (found.alternatives.size() == kMostAlternatives) return found;
      found.is_cut_short = Clock::now() > end;
      if (found.is_cut_short) return found;
      RunConfig changed = config;
      change.apply(changed);
      const auto bytes = planner.fitting_bytes(changed);
      if (!bytes) continue;
      found.alternatives.push_back({change.flags, *bytes});
      break;
    }
    if (!found.alternatives.empty() || found.together_fits) continue;
    const auto more = planner.strongest(option, together);
    if (!more) continue;
    together = more->run;
    found.together.flags += cat(found.together.flags.empty() ? "" : " ", more->change->flags);
    found.together.bytes = more->bytes;
    found.together_fits = more->fits;
  }
  return found;
}

std::string describe(const Remedies& remedies) {
  const auto size = [](int64_t bytes) { return format_bytes(static_cast<double>(bytes)); };
  const std::string unknown =
      remedies.is_cut_short ? "; not all options were planned, for lack of time" : "";
  if (!remedies.alternatives.empty()) {
    std::string text = "; each of these options is enough:";
    for (const Remedy& remedy : remedies.alternatives) {
      text += cat("\n  ", remedy.flags, " (", size(remedy.bytes), ")");
    }
    return text;
  }
  if (remedies.together.flags.empty()) return unknown;
  return cat(
      remedies.together_fits ? "; these options together are enough: " : "; not enough even with: ",
      remedies.together.flags, " (", size(remedies.together.bytes), ")",
      remedies.together_fits ? "" : unknown);
}

std::string describe(const Remedies& remedies, int64_t limit_bytes) {
  const std::string needed = format_bytes(static_cast<double>(remedies.planned_bytes));
  const std::string limit = format_bytes(static_cast<double>(limit_bytes));
  if (remedies.fits) {
    return cat("by its plan, this run needs ", needed, " of the ", limit,
               "; something else used the rest of the device's memory");
  }
  return cat("this run needs ", needed, " per rank, found ", limit, describe(remedies));
}

}  // namespace shale::models
