#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shale/models/training/report/metrics.h"
#include "shale/models/training/report/run_status.h"
#include "shale/models/training/report/samples_file.h"
#include "shale/models/training/report/starts_file.h"

namespace shale::models {

// A line of warnings.jsonl.
struct RunWarning {
  std::string time;  // time of the warning, UTC
  int rank = 0;
  std::string level;  // "warning" or "error"
  std::string text;
};

// Option names and values as text, sorted by name.
using RunOptions = std::vector<std::pair<std::string, std::string>>;

// Contents of a run's folder, for the report and the terminal.
struct RunData {
  std::string name;                // path or name that the user gave
  std::vector<StepMetrics> steps;  // steps, evaluations and ranks have ascending steps
  std::vector<EvalMetrics> evals;
  std::vector<RanksMetrics> ranks;
  std::optional<RunStatus> status;  // nullopt: no status.json
  std::vector<RunWarning> warnings;
  int64_t warnings_left_out = 0;    // number of warnings beyond kMostWarnings, the oldest
  int64_t warnings_unreadable = 0;  // number of damaged lines, as a killed rank leaves them
  std::vector<Sample> samples;
  std::vector<RunStart> starts;
  std::vector<int64_t> checkpoints;  // steps of the existing checkpoints, ascending
  RunOptions options;                // empty if there is no config.json

  static constexpr size_t kMostWarnings = 200;
};

// Sorts the rows of metrics.jsonl by kind and step, and keeps the last row of a step: joined or
// copied files may have a step twice.
RunData run_of(const std::vector<MetricsRow>& rows);

// Reads a run's folder, or only a metrics.jsonl. The run may still be writing. Throws
// MissingInputError if there are no metrics, DataError with path and line for malformed lines.
RunData read_run(const std::string& run);

// Reads the options of a run's folder; empty if there is no config.json. Throws DataError.
RunOptions read_run_options(const std::string& run);

// Converts the lines of a metrics.jsonl to CSV (RFC 4180): a header with all keys in order of their
// first occurrence, then one row per line; missing and null values are empty. Ignores a last line
// without newline. Throws DataError with `source` and line, also for more than 1,000 keys.
std::string csv_of_metrics(std::string_view jsonl, const std::string& source);

}  // namespace shale::models
