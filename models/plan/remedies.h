#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "shale/models/training/run_config.h"
#include "shale/models/training/task.h"

namespace shale::models {

// One rank of a run, with the inputs for plans of the run with other options.
struct PlannedRun {
  RunConfig run;     // resolved, with `threads` set; `device` is "cpu", "cuda" or an emulated one
  const Task& task;  // the run's own task; plans use copies, Task::twin()
  std::function<void(RunConfig&)> resolve;  // called after a change of options
  int rank = 0, ranks = 1;
};

// Limited memory: the device's, or the host's, which CPUs and emulated GPUs use.
enum class MemoryPool { kDevice, kHost };

// Memory that a rank needs, in bytes.
struct MemoryNeeds {
  int64_t device = 0;
  int64_t host = 0;  // batches, checkpoints, offloaded state; plus `device` unless it is a GPU

  int64_t in(MemoryPool pool) const { return pool == MemoryPool::kDevice ? device : host; }
};

// Plans the rank (plan_rank.h) without validations. Extrapolates to micro-batches above 1024
// samples (times RunConfig::tensor), so that no plan takes longer than that of 1024. Throws what
// plan_rank() throws, such as DeviceOutOfMemory beyond RunConfig::device_memory.
MemoryNeeds memory_needs(const PlannedRun& planned);

// Flags that reduce a rank's memory.
struct Remedy {
  std::string flags;  // "--recompute selective"
  int64_t bytes = 0;  // memory that the rank needs with them
};

// Options that would make a run fit.
struct Remedies {
  int64_t planned_bytes = 0;         // needed by the run's own options, without a limit
  bool fits = false;                 // the run's own options fit: unplanned memory was the cause
  std::vector<Remedy> alternatives;  // at most three options; each is enough by itself
  // If there are no alternatives: all remedies combined, which are enough if `together_fits`.
  Remedy together;
  bool together_fits = false;
  bool is_cut_short = false;  // time ran out before all options were planned
};

// Plans a rank that needs, or has needed, more than `limit_bytes` of a pool, with options changed
// one by one: first those that keep results bit-identical (recomputation, ZeRO stage, offload),
// then smaller micro-batches at the same global batch, then those that change results (8-bit
// states, bf16). Chooses the weakest sufficient setting of each option. Starts no plan after
// `most_seconds`. Throws the exceptions of memory_needs() for the unchanged options.
Remedies find_remedies(const PlannedRun& planned, MemoryPool pool, int64_t limit_bytes,
                       double most_seconds);

// Describes the remedies, for the end of an error message: "; each of these options is enough:
// ...".
std::string describe(const Remedies& remedies);
// Describes the memory that the run needs and its limit, then the remedies.
std::string describe(const Remedies& remedies, int64_t limit_bytes);

}  // namespace shale::models
