#include "shale/models/plan/memory_check.h"

#include <algorithm>
#include <map>
#include <sstream>
#include <utility>

#include "shale/base/cpu_affinity.h"
#include "shale/base/error.h"
#include "shale/base/host_memory.h"
#include "shale/base/host_name.h"
#include "shale/base/log.h"
#include "shale/runtime/tensor/device_backend.h"
#include "shale/runtime/tensor/out_of_memory.h"

namespace shale::models {
namespace {

constexpr double kMostSeconds = 10;  // maximum duration of find_remedies()

// Silences the log during a plan, because the run itself logs the same lines later.
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

// Memory of a host or GPU, and what the ranks on it need.
struct Shared {
  int64_t needed = 0, available = 0;
  int ranks = 0;
  int largest = 0;             // rank that needs the most memory
  int64_t largest_needed = 0;  // memory that this rank needs

  void add(int rank, int64_t needs, int64_t found) {
    available = ranks == 0 ? found : std::min(available, found);
    needed += needs;
    ++ranks;
    if (needs <= largest_needed) return;
    largest = rank;
    largest_needed = needs;
  }
};
// Name, for example "laptop" or "GPU 0000:17:00.0 of laptop".
using Place = std::pair<std::string, MemoryPool>;

// Gathers the needs of all ranks. A rank sends one line "POOL NEEDED AVAILABLE PLACE" for each
// memory that it uses.
std::map<Place, Shared> gather(const MemoryNeeds& needs, comm::ProcessGroup& group,
                               const std::optional<GpuMemory>& gpu) {
  const std::string host = host_name();
  std::string mine;
  if (const auto available = available_host_memory()) {
    mine += cat("host ", needs.host, " ", *available, " ", host, "\n");
  }
  if (gpu) mine += cat("device ", needs.device, " ", gpu->free, " ", gpu->name, " of ", host, "\n");
  const std::vector<std::string> all = group.host().all_gather_bytes(mine, "planned memory");
  std::map<Place, Shared> places;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    std::istringstream lines(all[rank]);
    std::string pool, place;
    int64_t needed = 0, available = 0;
    while (lines >> pool >> needed >> available && std::getline(lines >> std::ws, place)) {
      const MemoryPool kind = pool == "device" ? MemoryPool::kDevice : MemoryPool::kHost;
      places[{place, kind}].add(static_cast<int>(rank), needed, available);
    }
  }
  return places;
}

// Returns an error message if ranks need more memory than there is. Empty: their needs fit once
// their allocators free cached memory.
std::string problem_of(const Place& place, const Shared& shared, PlannedRun planned) {
  const double part = static_cast<double>(shared.available) / static_cast<double>(shared.needed);
  const Silence silence(planned.run.quiet);
  planned.rank = shared.largest;
  const auto limit = static_cast<int64_t>(part * static_cast<double>(shared.largest_needed));
  Remedies found;
  try {
    found = find_remedies(planned, place.second, limit, kMostSeconds);
  } catch (const Error& error) {  // an exception would end only this rank
    log_info("cannot suggest options that need less memory: ", error.what());
  }
  if (found.fits) return {};
  return cat("memory: this run needs ", size(shared.needed), " on ", place.first, " (",
             shared.ranks, shared.ranks == 1 ? " rank), found " : " ranks), found ",
             size(shared.available), " free", describe(found));
}

// Returns options with which a run that ran out of memory would fit; empty: none known. Plans the
// run, which takes less than half a minute, while the other ranks wait.
std::string advice(PlannedRun planned, const DeviceOutOfMemory& error, int ranks_of_host) {
  RunConfig& run = planned.run;
  const bool has_host_memory = run.offload != OffloadKind::kNone || run.offload_activations;
  if (error.budget_bytes() == 0 && has_host_memory) return {};  // host memory may have run out
  if (run.device == "auto") run.device = to_string(error.device().type);
  int64_t limit = error.budget_bytes() > 0 ? error.budget_bytes() : error.held_bytes();
  if (error.budget_bytes() == 0 && error.device().type == DeviceType::kCpu) {
    limit += available_host_memory().value_or(0) / ranks_of_host;
  }
  try {
    return describe(find_remedies(planned, MemoryPool::kDevice, limit, kMostSeconds), limit);
  } catch (const std::exception& failure) {  // ignored, so that the original error is reported
    log_info("cannot suggest options that need less memory: ", failure.what());
    return {};
  }
}

// Resolves `run` by means of the program, which can only resolve its own options. Restores those
// afterwards.
void resolve_with(const TrainingProgram& program, RunConfig& run, int ranks) {
  struct Restore {
    RunConfig &own, &other;
    ~Restore() { std::swap(own, other); }
  };
  std::swap(program.run, run);
  const Restore restore{program.run, run};
  program.resolve(ranks);
}

}  // namespace

void check_memory(const PlannedRun& planned, comm::ProcessGroup& group,
                  const std::optional<GpuMemory>& gpu) {
  PlannedRun free = planned;
  const int64_t budget = std::exchange(free.run.device_memory, 0);
  MemoryNeeds needs;
  try {
    const Silence silence(planned.run.quiet);
    needs = memory_needs(free);
  } catch (const Error& error) {
    log_info("memory is not checked before the run: ", error.what());
  }
  if (const int64_t beyond = needs.device - budget; budget > 0 && beyond > 0) {
    if (planned.run.device != "cuda") needs.host -= beyond;
    needs.device = budget;
  }
  for (const auto& [place, shared] : gather(needs, group, gpu)) {
    if (shared.needed <= shared.available) continue;
    std::string problem;
    if (group.rank() == 0) problem = problem_of(place, shared, free);
    problem = group.host().broadcast_bytes(problem, /*root=*/0, "advice on memory");
    if (!problem.empty()) throw OutOfMemoryError(problem);
  }
}

void plan_memory(TrainingProgram& program) {
  const auto planned = [&program](const Task& task, int threads, int rank, int ranks) {
    PlannedRun run{
        .run = program.run,
        .task = task,
        .resolve = [&program, ranks](RunConfig& of) { resolve_with(program, of, ranks); },
        .rank = rank,
        .ranks = ranks};
    run.run.threads = threads;
    return run;
  };
  program.check = [planned](const Task& task, Context& context, comm::ProcessGroup& group) {
    PlannedRun run = planned(task, context.exec().threads, group.rank(), group.size());
    const Device device = context.device();
    if (run.run.device == "auto") run.run.device = to_string(device.type);
    std::optional<GpuMemory> gpu;
    if (const auto free = free_memory(device)) {
      const std::vector<std::string> ids = visible_gpus().ids;
      gpu = {cat("GPU ", ids.at(static_cast<size_t>(device.index))), *free};
    }
    check_memory(run, group, gpu);
  };
  program.advice = [planned, &program](const Task& task, const DeviceOutOfMemory& error,
                                       const comm::World& world) {
    const int threads = resolve_threads(program.run.threads, world.local_size());
    return advice(planned(task, threads, world.rank(), world.size()), error, world.local_size());
  };
}

}  // namespace shale::models
