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

constexpr int64_t kBeyondAddresses = int64_t{1} << 46;  // of a plan that has no address space left

constexpr size_t kMostAlternatives = 3;

// Share of a GPU's limit left free, as a plan does not include all memory of a GPU (plan_rank.h).
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

// Offloads to memory that the budget does not count. A CPU without a budget has no other memory.
Strengths offload(const RunConfig& config) {
  const bool has_other_memory = config.device != "cpu" || config.device_memory > 0;
  if (config.offload != OffloadKind::kNone || !has_other_memory) return {};
  return {{"--offload optimizer", [](auto& c) { c.offload = OffloadKind::kOptimizer; }}};
}

Strengths micro_batches(const RunConfig& config) {
  Strengths result;
  for (int64_t size = config.micro_batch / 2; size > 0; size /= 2) {
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

// Returns the host memory of a rank's batches: those of the Prefetcher, and the one in use.
int64_t batch_bytes(const PlannedProgram& program, const RunConfig& run) {
  return program.sample_bytes * run.micro_batch * (run.workers + 2);
}

class Planner {
 public:
  Planner(const PlannedProgram& program, int rank, int ranks, int64_t limit_bytes)
      : program_(program), rank_(rank), ranks_(ranks), limit_bytes_(limit_bytes) {}
  const RunConfig& run() const { return program_.run; }

  // Returns the rank's peak memory without a limit.
  int64_t free_bytes(RunConfig run) const {
    run.device_memory = 0;
    try {
      return bytes_of(std::move(run));
    } catch (const OutOfMemoryError&) {
      return kBeyondAddresses;
    }
  }

  // Returns the rank's peak memory within the limit, as allocators free cached memory before they
  // fail; nothing if that is not enough or the options are incompatible.
  std::optional<int64_t> fitting_bytes(const RunConfig& run) const {
    return within(limit_bytes_, run);
  }

  // The strongest setting of an option that is compatible with the others, and the rank's memory
  // with it, within the limit if possible.
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
    run.device_memory = limit_bytes;
    if (limit_bytes > 0) run.device_memory -= batch_bytes(program_, run);
    if (limit_bytes > 0 && run.device_memory <= 0) return std::nullopt;
    try {
      return bytes_of(std::move(run));
    } catch (const OutOfMemoryError&) {
      return std::nullopt;
    } catch (const ConfigError&) {
      return std::nullopt;
    }
  }

  int64_t bytes_of(RunConfig run) const {
    PlannedProgram changed = program_;
    changed.resolve(run, ranks_);
    changed.run = std::move(run);
    return needed_bytes(changed, rank_, ranks_);
  }

  const PlannedProgram& program_;
  int rank_, ranks_;
  int64_t limit_bytes_;
};

}  // namespace

int64_t sample_bytes(Task& task, const RunConfig& run, int rank, int ranks) {
  const DataRanks data = data_ranks(run, parallel_layout(run, ranks), rank);
  Batch batch;
  task.train_batches({.layout = {.global_batch = data.count, .micro_batch = 1, .ranks = data.count},
                      .rank = data.rank})(0, batch);
  int64_t bytes = 0;
  for (const HostTensor& field : batch.fields) bytes += std::ssize(field.bytes);
  return bytes;
}

int64_t needed_bytes(const PlannedProgram& program, int rank, int ranks) {
  RunConfig run = program.run;
  run.memory_profile.clear();
  run.eval_every = 0;
  if (run.pipeline == 1) {  // further micro-batches of a step need no more memory
    const DataRanks data = data_ranks(run, parallel_layout(run, ranks), rank);
    run.global_batch = std::min(run.global_batch, 2 * run.micro_batch * data.count);
  }
  const std::unique_ptr<Task> task = program.make_task(run);
  const RankMemory memory =
      plan_rank(run, *task, rank, ranks, /*clock=*/nullptr, /*lists_memory=*/false).memory;
  const bool shares_host = run.device != "cuda" && run.device_memory == 0 && memory.host;
  return memory.device.reserved + (shares_host ? memory.host->reserved : 0) +
         batch_bytes(program, program.run);
}

Remedies find_remedies(const PlannedProgram& program, int rank, int ranks, int64_t limit_bytes,
                       double most_seconds) {
  const auto end = Clock::now() + std::chrono::duration<double>(most_seconds);
  const RunConfig& config = program.run;
  const double known = config.device == "cpu" ? 1 : 1 - kUnknownOfGpus;
  const Planner planner(program, rank, ranks,
                        static_cast<int64_t>(known * static_cast<double>(limit_bytes)));
  Remedies found;
  found.planned_bytes = planner.free_bytes(planner.run());
  found.fits = planner.fitting_bytes(planner.run()).has_value();
  if (found.fits) return found;
  RunConfig together = planner.run();
  for (const Strengths& option : {recomputation(config), stages(config, ranks), offload(config),
                                  micro_batches(config), states(config), precision(config)}) {
    for (const Change& change : option) {
      if (found.alternatives.size() == kMostAlternatives) return found;
      found.is_cut_short = Clock::now() > end;
      if (found.is_cut_short) return found;
      RunConfig changed = planner.run();
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
