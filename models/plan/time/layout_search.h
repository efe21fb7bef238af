#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "shale/base/error.h"
#include "shale/models/plan/time/layouts.h"

namespace shale::models {

struct LayoutSearchOptions {
  int64_t most_bytes = 0;  // memory limit of a rank's device; 0: none
  size_t top = 20;         // number of fastest layouts to find
  bool keep_micro_batch = false, keep_recompute = false;  // options that the search keeps
  // Limits of the search, which then returns the best layouts so far; 0: no limit. Results depend
  // on the machine's load only if `most_seconds` ends the search.
  double most_seconds = 0;
  int64_t most_dry_runs = 0;
  bool exhaustive = false;  // excludes no layout by bounds; for tests of the bounds
};

// The search reached its limit before it found a layout. The program ends with exit code 1.
class IncompleteSearchError : public Error {
 public:
  explicit IncompleteSearchError(const std::string& message) : Error(ExitCode{1}, message) {}
};

// Fastest layouts of a run, and counts of all other layouts that the search considered.
struct FoundLayouts {
  std::vector<PlannedLayout> best;  // fastest first
  int64_t candidates = 0;           // layouts whose options train_lm accepts
  int64_t refused = 0;              // candidates that do not suit the model
  int64_t too_large = 0;            // candidates that need more memory than a device has
  int64_t slower = 0;               // excluded: a bound shows that they are not among the best
  int64_t planned = 0;              // candidates whose step was planned
  int64_t left = 0;                 // candidates not evaluated when the search reached its limit
  double least_seconds = 0;         // lower bound of the step time of these `left` candidates
  // Dry runs made. Given as `most_dry_runs`, this number reproduces a search that ended early.
  int64_t dry_runs = 0;
  std::string refusal;  // error of the first refused layout
};

// Finds the fastest layouts that fit the memory, at the run's global batch on `ranks` ranks.
// Searches every combination of --tensor (within a node), --context, --expert, --pipeline,
// --pipeline-chunks, --zero, --shard-ranks, --micro-batch and --recompute that train_lm accepts. A
// combination is excluded without a plan only by a lower bound of its memory or time
// (layout_bounds.h). Other combinations are planned with just enough micro-batches to extrapolate
// the rest, and pipeline stages with equal work are planned once. `config` is resolved, with
// `threads` set; its own values of these flags and its device memory budget are ignored. make_task:
// makes the run's task; one plan uses one task.
FoundLayouts search_layouts(const RunConfig& config,
                            const std::function<std::unique_ptr<Task>()>& make_task, int ranks,
                            const PlanMachines& machines, const LayoutSearchOptions& options);

// Throws if `best` is empty. IncompleteSearchError: some layouts were not evaluated; `remedy` says
// what to do. OutOfMemoryError: all were evaluated or excluded by a bound; none fits. ConfigError:
// the model or its options refuse all of them. caller: prefix of the message.
void check_found(const FoundLayouts& found, const LayoutSearchOptions& options,
                 std::string_view caller, std::string_view remedy);

// Returns "7 of 90 layouts were not evaluated"; empty if all were.
std::string describe_left(const FoundLayouts& found);

}  // namespace shale::models
