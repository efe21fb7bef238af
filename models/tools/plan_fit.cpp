#include "shale/models/tools/plan_fit.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "shale/base/error.h"
#include "shale/base/text.h"
#include "shale/models/plan/time/stages.h"
#include "shale/models/training/parallel_setup.h"

namespace shale::models {
namespace {

constexpr int kTries = 4;           // maximum number of micro-batch sizes to plan
constexpr int64_t kMostTimes = 16;  // largest micro-batch to plan / micro-batch of the run
constexpr size_t kMostChanges = 3;

// Returns the bytes that the most loaded rank holds with these options. Returns nothing if it needs
// more than `most_bytes`, or if the options are incompatible.
std::optional<int64_t> fitting(const PlannedProgram& program, int ranks, RunConfig run,
                               int64_t most_bytes) {
  run.device_memory = most_bytes;  // the allocator frees cached memory before it fails
  std::swap(program.run, run);
  std::optional<int64_t> bytes;
  try {
    program.resolve(ranks);
    for (const TimedRank& stage : plan_stages(program.run, program.make_task, ranks, nullptr)) {
      bytes = std::max(bytes.value_or(0), stage.memory.device.reserved);
    }
  } catch (const OutOfMemoryError&) {
    bytes.reset();
  } catch (const ConfigError&) {
    bytes.reset();
  }
  std::swap(program.run, run);
  return bytes;
}

// Returns the largest micro-batch that fits; 0: unknown. Estimates it from the activations at the
// peak, then plans it and smaller ones until one fits.
int64_t largest_micro_batch(const PlannedProgram& program, int ranks, const MemoryPeak& most,
                            int64_t most_bytes, bool keeps_batch) {
  const RunConfig& run = program.run;
  const comm::ParallelSizes sizes = parallel_sizes(run, ranks);
  const int64_t data = int64_t(sizes.replica) * sizes.shard, micros = micro_batches(run, ranks);
  const double activations = double(most.by_tag[size_t(MemoryTag::kActivation)]);
  const double room = double(most_bytes - most.reserved) + activations;
  if (room <= 0 || activations <= 0) return 0;
  const int64_t samples = run.micro_batch * micros;
  auto size = int64_t(double(run.micro_batch) * std::min(room / activations, double(kMostTimes)));
  if (keeps_batch) size = std::min(size, samples);
  for (int tries = 0; size > 0 && tries < kTries; --size) {
    if (keeps_batch && samples % size != 0) continue;
    RunConfig other = run;
    other.micro_batch = size;
    if (!keeps_batch) other.global_batch = size * micros * data;
    if (fitting(program, ranks, std::move(other), most_bytes)) return size;
    ++tries;
  }
  return 0;
}

std::vector<std::string> changes_of(const PlannedProgram& program, int ranks, int64_t most_bytes) {
  std::vector<std::string> changes;
  const auto try_change = [&](const std::string& flags, const auto& apply) {
    if (changes.size() == kMostChanges) return;
    RunConfig other = program.run;
    apply(other);
    const auto bytes = fitting(program, ranks, std::move(other), most_bytes);
    if (bytes) changes.push_back(cat(flags, " (", format_bytes(double(*bytes)), ")"));
  };
  const RunConfig& run = program.run;
  for (const auto& [name, level] :
       {std::pair("selective", Recompute::kSelective), std::pair("full", Recompute::kFull)}) {
    if (run.recompute >= level) continue;
    try_change(cat("--recompute ", name), [level = level](RunConfig& c) { c.recompute = level; });
    if (!changes.empty()) break;  // a stronger level is not needed
  }
  for (int stage = run.zero + 1; ranks > 1 && stage <= 3; ++stage) {
    const size_t before = changes.size();
    try_change(cat("--zero ", stage), [stage](RunConfig& c) { c.zero = stage; });
    if (changes.size() > before) break;
  }
  if (run.offload == OffloadKind::kNone) {
    try_change("--offload optimizer", [](RunConfig& c) { c.offload_to = "optimizer"; });
  }
  if (changes.empty()) {
    try_change("--recompute full --zero 3 --offload params", [](RunConfig& c) {
      c.recompute = Recompute::kFull;
      c.zero = 3;
      c.offload_to = "params";
    });
  }
  return changes;
}

}  // namespace

PlanFit plan_fit(const PlannedProgram& program, int ranks, std::span<const TimedRank> planned,
                 int64_t most_bytes, bool keeps_batch) {
  const auto held = [](const TimedRank& rank) { return rank.memory.device.reserved; };
  const RankMemory& most = std::ranges::max_element(planned, {}, held)->memory;
  PlanFit fit{.rank = most.rank, .bytes = most.device.reserved, .most_bytes = most_bytes};
  if (most_bytes == 0) return fit;
  fit.fits = fit.bytes <= most_bytes || fitting(program, ranks, program.run, most_bytes);
  fit.micro_batch = largest_micro_batch(program, ranks, most.device, most_bytes, keeps_batch);
  if (!fit.fits) fit.changes = changes_of(program, ranks, most_bytes);
  return fit;
}

std::string describe(const PlanFit& fit) {
  if (fit.most_bytes == 0) return {};
  const auto size = [](int64_t bytes) { return format_bytes(double(bytes)); };
  const std::string largest =
      fit.micro_batch > 0 ? cat("largest micro-batch that fits: ", fit.micro_batch) : "";
  if (fit.fits) {
    return cat("fits: ", size(fit.bytes), " of ", size(fit.most_bytes), " per device",
               largest.empty() ? "" : "; ", largest, "\n");
  }
  std::string text = cat("does not fit: rank ", fit.rank, " needs ", size(fit.bytes), ", found ",
                         size(fit.most_bytes), " per device");
  if (!fit.changes.empty()) text += "; each of these is enough: ";
  for (const std::string& change : fit.changes) {
    text += cat(&change == &fit.changes.front() ? "" : ", ", change);
  }
  if (!largest.empty()) text += cat("; ", largest);
  if (fit.changes.empty() && largest.empty()) {
    text += "; use more --ranks, or search all layouts with --layouts and --cluster";
  }
  return text + "\n";
}

}  // namespace shale::models
