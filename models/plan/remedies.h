#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shale/models/language/config.h"

namespace shale::models {

// Flags of train_lm that reduce a rank's device memory.
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

// Plans rank `rank` of a run (plan_rank.h) that failed with `limit_bytes` held by its allocator,
// with options changed one by one: first those that keep results bit-identical (recomputation, ZeRO
// stage, offload), then smaller micro-batches at the same global batch, then those that change
// results (8-bit states, bf16). Of each option the weakest setting that is enough is chosen. Starts
// no plan after `most_seconds`.
//
// `config` is resolved, `threads` is set, and its `device` is "cpu", "cuda" or an emulated one.
// Throws the exceptions of plan_rank() for the unchanged options.
Remedies find_remedies(const TrainConfig& config, int rank, int ranks, int64_t limit_bytes,
                       double most_seconds);

// Describes the remedies in words, for the end of an error message.
std::string describe(const Remedies& remedies, int64_t limit_bytes);

}  // namespace shale::models
