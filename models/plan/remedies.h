#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "shale/models/training/run_config.h"
#include "shale/models/training/task.h"

namespace shale::models {

// One rank of a run, and what is needed to plan it with other options.
struct PlannedRun {
  RunConfig run;     // resolved, with `threads` set; `device` is "cpu", "cuda" or an emulated one
  const Task& task;  // task of the run; each plan uses a copy, Task::twin()
  std::function<void(RunConfig&)> resolve;  // called after a change of options
  int rank = 0, ranks = 1;
};

// Memory with a limit: device memory, or host memory, which CPUs and emulated GPUs use.
enum class MemoryPool { kDevice, kHost };

// Memory that a rank needs, in bytes.
struct MemoryNeeds {
  int64_t device = 0;
  // Batches, checkpoints, offloaded state; also `device` if the device is not a GPU.
  int64_t host = 0;

  int64_t in(MemoryPool pool) const { return pool == MemoryPool::kDevice ? device : host; }
};

// Plans the rank (plan_rank.h) without validations. Extrapolates to micro-batches of more than 1024
// samples per tensor-parallel rank, so that no plan takes longer than one with 1024. Throws what
// plan_rank() throws, such as DeviceOutOfMemory beyond RunConfig::device_memory.
MemoryNeeds memory_needs(const PlannedRun& planned);

// Options that reduce a rank's memory.
struct Remedy {
  std::string flags;  // for example "--recompute selective"
  int64_t bytes = 0;  // memory that the rank needs with these options
};

// Options that would make a run fit.
struct Remedies {
  // Memory that the rank needs with the run's own options, without a limit.
  int64_t planned_bytes = 0;
  bool fits = false;  // true: the run's own options fit, and memory outside the plan was the cause
  std::vector<Remedy> alternatives;  // at most three; each of them is enough
  // All remedies together, if there are no alternatives. They are enough if `together_fits`.
  Remedy together;
  bool together_fits = false;
  bool is_cut_short = false;  // time ran out before all options were planned
};

// Finds options with which a rank needs at most `limit_bytes` of a pool. Plans the rank with one
// option changed at a time: first those that keep results bit-identical (recomputation, ZeRO stage,
// offload), then smaller micro-batches at the same global batch, then those that change results
// (8-bit states, bf16). Chooses the weakest setting of each option that is enough. Starts no plan
// after `most_seconds`. Throws what memory_needs() throws for the unchanged options.
Remedies find_remedies(const PlannedRun& planned, MemoryPool pool, int64_t limit_bytes,
                       double most_seconds);

// Describes the remedies as the end of an error message: "; each of these options is enough: ...".
std::string describe(const Remedies& remedies);
// Describes the memory that the run needs and its limit, then the remedies.
std::string describe(const Remedies& remedies, int64_t limit_bytes);

}  // namespace shale::models
