#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shale/models/language/config.h"

namespace shale::models {

// Flags of train_lm with which a rank would hold less device memory.
struct Remedy {
  std::string flags;  // "--recompute selective"
  int64_t bytes = 0;  // that its allocator would hold
};

// What would have made a run fit.
struct Remedies {
  int64_t planned_bytes = 0;         // that the run's own options take, where there is no limit
  bool fits = false;                 // within the limit, too: what took the memory is not planned
  std::vector<Remedy> alternatives;  // each is enough by itself; at most three
  // Where there are no alternatives: all of it together, which is enough if `together_fits`.
  Remedy together;
  bool together_fits = false;
  bool is_cut_short = false;  // time was up before all options were planned
};

// Plans rank `rank` of a run (plan_rank.h) whose memory ended at `limit_bytes` held by its
// allocator, with options changed one by one: first those that leave every bit as it is
// (recomputation, stages, offload), then smaller micro-batches at the same global batch, then those
// that change results (8-bit states, bf16). Of several strengths of an option the least that is
// enough is taken. Begins no plan after `most_seconds`.
//
// `config` is resolved, `threads` given, and its `device` "cpu", "cuda" or an emulated one. Throws
// what plan_rank() throws for the options as they are.
Remedies find_remedies(const TrainConfig& config, int rank, int ranks, int64_t limit_bytes,
                       double most_seconds);

// In words, for the end of an error message.
std::string describe(const Remedies& remedies, int64_t limit_bytes);

}  // namespace shale::models
