#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "shale/models/training/run_config.h"
#include "shale/models/training/task.h"

namespace shale::models {

// Training program with a resolved run, for plans of it and of the run with other options.
struct PlannedProgram {
  RunConfig run;  // `threads` is set, and `device` is "cpu", "cuda" or an emulated one
  std::function<void(RunConfig& run, int ranks)> resolve = {};  // after a change of options
  std::function<std::unique_ptr<Task>(const RunConfig& run)> make_task = {};
  // Bytes of a sample in a batch in host memory, if batches count; 0: they do not.
  int64_t sample_bytes = 0;
};

// Returns the bytes of a sample in a batch, by making one of one sample.
int64_t sample_bytes(Task& task, const RunConfig& run, int rank, int ranks);

// Plans the memory that a rank of the run needs in training steps (plan_rank.h): that of its
// device, also offloaded state if the device is the CPU, and batches if they count. Throws
// OutOfMemoryError beyond --device-memory, or the address space.
int64_t needed_bytes(const PlannedProgram& program, int rank, int ranks);

// Flags of a training program that reduce a rank's device memory.
struct Remedy {
  std::string flags;  // "--recompute selective"
  int64_t bytes = 0;  // device memory that the rank's allocator reserves with them
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

// Plans rank `rank` of a run (plan_rank.h) that has failed or would fail with `limit_bytes` held by
// its allocator, with options changed one by one: first those that keep results bit-identical
// (recomputation, ZeRO stage, offload), then smaller micro-batches at the same global batch, then
// those that change results (8-bit states, bf16). Of each option the weakest setting that is enough
// is chosen. Starts no plan after `most_seconds`.
//
// Throws the exceptions of plan_rank() for the unchanged options.
Remedies find_remedies(const PlannedProgram& program, int rank, int ranks, int64_t limit_bytes,
                       double most_seconds);

// Describes the remedies in words, for the end of an error message.
std::string describe(const Remedies& remedies, int64_t limit_bytes);

}  // namespace shale::models
