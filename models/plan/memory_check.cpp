#include "shale/models/plan/memory_check.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <sstream>
#include <utility>
#include <vector>

#include "shale/base/cpu_affinity.h"
#include "shale/base/error.h"
#include "shale/base/host_memory.h"
#include "shale/base/log.h"
#include "shale/runtime/tensor/device_backend.h"

namespace shale::models {
namespace {

constexpr double kMostSeconds = 10;  // for remedies

// Needs of a rank, and what its host has available, in bytes.
struct RankNeeds {
  std::string host;
  int64_t needed = 0, available = 0;
};

RankNeeds parse_needs(const std::string& text) {
  RankNeeds needs;
  std::istringstream(text) >> needs.needed >> needs.available >> needs.host;
  return needs;
}

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

// Silences the log: a plan says what the run says later.
class Silence {
 public:
  explicit Silence(bool was_quiet) : was_quiet_(was_quiet) { set_process_log({.quiet = true}); }
  ~Silence() { set_process_log({.quiet = was_quiet_}); }
  Silence(const Silence&) = delete;
  Silence& operator=(const Silence&) = delete;

 private:
  bool was_quiet_;
};

std::string size(int64_t bytes) {
  return format_bytes(static_cast<double>(bytes));
}

// Returns the host memory that this rank needs.
int64_t planned_bytes(PlannedProgram program, int rank, int ranks) {
  const int64_t budget = std::exchange(program.run.device_memory, 0);
  try {
    const int64_t bytes = needed_bytes(program, rank, ranks);
    return budget > 0 ? std::min(bytes, budget) : bytes;
  } catch (const OutOfMemoryError&) {
    return int64_t{1} << 46;  // beyond the address space
  }
}

}  // namespace

void check_host_memory(PlannedProgram program, Task& opened, comm::World& world) {
  RunConfig& run = program.run;
  if (run.device == "auto" || run.device == "cuda") {
    if (!visible_gpus().ids.empty()) return;
    run.device = "cpu";
  }
  const Silence silence(run.quiet);
  run.threads = plan_threads(run.threads, world.local_size(), cpu_counts()).threads;
  program.sample_bytes = sample_bytes(opened, run, world.rank(), world.size());
  const int ranks = world.size();
  const auto available = available_host_memory();
  if (!available) return;
  const std::string mine =
      cat(planned_bytes(program, world.rank(), ranks), " ", *available, " ", host_name());
  const auto group = world.group({.name = "memory", .timeout_s = run.start_timeout_s});
  const std::vector<std::string> all = group->all_gather_bytes(mine, "planned memory");
  for (int rank = 0; rank < ranks; ++rank) {
    const RankNeeds first = parse_needs(all[static_cast<size_t>(rank)]);
    int64_t needed = 0, beside = 0;
    for (const std::string& text : all) {
      const RankNeeds one = parse_needs(text);
      if (one.host != first.host) continue;
      needed += one.needed;
      ++beside;
    }
    if (needed <= first.available) continue;
    std::string advice;
    if (world.rank() == 0) {
      const int64_t limit = first.available / beside;
      advice = describe(find_remedies(program, rank, ranks, limit, kMostSeconds), limit);
    }
    advice = group->broadcast_bytes(advice, /*root=*/0, "advice on memory");
    throw OutOfMemoryError(cat("memory: this run needs ", size(needed), " on ", first.host, " (",
                               beside, beside == 1 ? " rank), found " : " ranks), found ",
                               size(first.available), " available\n  ", advice));
  }
}

std::string memory_advice(PlannedProgram program, const DeviceOutOfMemory& error,
                          const comm::World& world) {
  RunConfig& run = program.run;
  const bool has_host_memory = run.offload != OffloadKind::kNone || run.offload_activations;
  if (error.budget_bytes() == 0 && has_host_memory) return {};  // maybe host memory ran out
  run.threads = resolve_threads(run.threads, world.local_size());
  if (run.device == "auto") run.device = to_string(error.device().type);
  int64_t limit = error.budget_bytes() > 0 ? error.budget_bytes() : error.held_bytes();
  if (error.budget_bytes() == 0 && error.device().type == DeviceType::kCpu) {
    limit += available_host_memory().value_or(0) / world.local_size();
  }
  try {
    return describe(find_remedies(program, world.rank(), world.size(), limit, kMostSeconds), limit);
  } catch (const std::exception& failure) {  // the original error is reported
    log_info("cannot advise on memory: ", failure.what());
    return {};
  }
}

}  // namespace shale::models
