#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "shale/base/error.h"
#include "shale/models/plan/time/layout_bounds.h"
#include "shale/models/plan/time/layouts.h"

namespace shale::models {

struct LayoutSearchOptions {
  int64_t most_bytes = 0;  // memory limit of a rank's device; 0: none
  size_t top = 20;         // number of fastest layouts to find
  // Keep the run's own values of these options.
  bool keep_micro_batch = false, keep_recompute = false;
  // Maximum number of layouts to plan; 0: all that may be among the fastest.
  int64_t most_nodes = 0;
  bool exhaustive = false;  // plan all layouts; for tests of the bounds
  // Makes small models for bounds and estimates; null: uses whole models.
  MakeShorterTask make_shorter = {};
  // Throws ConfigError for layouts that are incompatible with options of the model; null: none are.
  std::function<void(const RunConfig&)> check = {};
  // Called after every few plans, with the results so far.
  std::function<void(const struct FoundLayouts&)> progress = {};
};

// The search reached its limit before it found a layout. The program ends with exit code 1.
class IncompleteSearchError : public Error {
 public:
  explicit IncompleteSearchError(const std::string& message) : Error(ExitCode{1}, message) {}
};

// Fastest layouts of a run, and counts of the layouts that the search considered.
struct FoundLayouts {
  std::vector<PlannedLayout> best;  // fastest layout first
  int64_t candidates = 0;           // layouts whose options train_lm accepts
  int64_t refused = 0;              // candidates that do not suit the model
  int64_t too_large = 0;            // candidates that need more memory than a device has
  int64_t slower = 0;               // candidates with a bound that excludes them from the best
  int64_t planned = 0;              // candidates whose step was planned
  int64_t left = 0;                 // candidates not evaluated when the search reached its limit
  double least_seconds = 0;         // lower bound of the step time of these `left` candidates
  double likely_seconds = 0;        // least estimate of the step time of these `left` candidates
  std::string refusal;  // error of the first refused layout
};

// Finds the fastest layouts that fit the memory, for the run's global batch on `ranks` ranks.
// Searches every combination of --tensor (within a node), --context, --expert, --pipeline,
// --pipeline-chunks, --zero, --shard-ranks, --micro-batch and --recompute that train_lm accepts.
// First plans the best layouts of a few usual kinds, then all others in the order of their
// estimated times (stages.h, layout_bounds.h). Only a lower bound of memory or time excludes a
// layout without a plan. Results do not depend on the machine or its load, unless kernels are
// measured.
//
// `config` is resolved, with `threads` set. Its own values of the searched flags, and its limit of
// device memory, are ignored. make_task: makes the run's task; each plan uses one task.
FoundLayouts search_layouts(const RunConfig& config, const MakeTask& make_task, int ranks,
                            const PlanMachines& machines, const LayoutSearchOptions& options);

// Throws if `best` is empty. IncompleteSearchError: some layouts were not evaluated; `remedy` says
// what to do. OutOfMemoryError: all were planned or excluded by a bound, and none fits.
// ConfigError: model or options reject all of them. caller: prefix of the message.
void check_found(const FoundLayouts& found, const LayoutSearchOptions& options,
                 std::string_view caller, std::string_view remedy);

// Returns "7 of 90 layouts were not evaluated"; empty if all were.
std::string describe_left(const FoundLayouts& found);

}  // namespace shale::models
