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
  int64_t most_bytes = 0;  // that a device has for a rank; 0: any number
  size_t top = 20;         // of the fastest layouts, which are found
  bool keep_micro_batch = false, keep_recompute = false;  // as the run has them
  // Limits of the search, which then ends with the best so far; 0: no limit. Results depend on the
  // machine's load where `most_seconds` ends the search, and never on it otherwise.
  double most_seconds = 0;
  int64_t most_dry_runs = 0;
  bool exhaustive = false;  // drops nothing: for tests of what the bounds drop
};

// A search that reached its limit before it found a layout. The program ends with exit code 1.
class IncompleteSearchError : public Error {
 public:
  explicit IncompleteSearchError(const std::string& message) : Error(ExitCode{1}, message) {}
};

// The fastest layouts of a run, and what became of the others.
struct FoundLayouts {
  std::vector<PlannedLayout> best;  // the fastest first
  int64_t candidates = 0;           // that train_lm would take, by its options
  int64_t refused = 0;              // of them, those that the model cannot be cut into
  int64_t too_large = 0;            // that need more memory than a device has
  int64_t slower = 0;               // that cannot be faster than the best, by a bound
  int64_t planned = 0;              // whose step was planned
  int64_t left = 0;                 // not evaluated when the search reached its limit
  double least_seconds = 0;         // that a step of these takes, by a bound
  // Dry runs that the search made. Given as `most_dry_runs` they repeat a search that ended early.
  int64_t dry_runs = 0;
  std::string refusal;  // error of the first refused layout
};

// Searches every combination of --tensor (within a node), --context, --expert, --pipeline and
// --pipeline-chunks, --zero, --shard-ranks, --micro-batch and --recompute that train_lm would take
// on so many ranks, at the run's global batch, for the fastest that fit the memory. A combination
// is dropped without a plan only by a lower bound of its memory or time, taken from a rehearsal of
// one micro-batch with everything else alone: on one stage, without data parallelism but that which
// experts are dealt to. The others'
// steps are planned with as few micro-batches as show what one more adds, and a pipeline's stages
// that have equal work once. `config` is resolved, with `threads` given; its own values of these
// flags, and its budget of device memory, do not count. make_task: the run's task, which one plan
// takes.
FoundLayouts search_layouts(const RunConfig& config,
                            const std::function<std::unique_ptr<Task>()>& make_task, int ranks,
                            const PlanMachines& machines, const LayoutSearchOptions& options);

// Throws if `best` is empty. IncompleteSearchError: layouts are left, and `remedy` says what to do;
// OutOfMemoryError: all were evaluated or excluded by a bound, and none fits; ConfigError: the
// model or its options refuse them all. caller: begins the message.
void check_found(const FoundLayouts& found, const LayoutSearchOptions& options,
                 std::string_view caller, std::string_view remedy);

// "7 of 90 layouts were not evaluated"; empty if none is left.
std::string describe_left(const FoundLayouts& found);

}  // namespace shale::models
