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
  std::string time;  // UTC
  int rank = 0;
  std::string level;  // "warning" or "error"
  std::string text;
};

// Names and values as text, sorted.
using RunOptions = std::vector<std::pair<std::string, std::string>>;

// What a run has left in its folder, for those that look at it: the report, the terminal.
struct RunData {
  std::string name;                // as the user named the folder
  std::vector<StepMetrics> steps;  // steps ascend, as in the next two
  std::vector<EvalMetrics> evals;
  std::vector<RanksMetrics> ranks;
  std::optional<RunStatus> status;  // nullopt: there is no status.json
  std::vector<RunWarning> warnings;
  int64_t warnings_left_out = 0;    // older ones, beyond kMostWarnings
  int64_t warnings_unreadable = 0;  // lines that a rank was killed over
  std::vector<Sample> samples;
  std::vector<RunStart> starts;
  std::vector<int64_t> checkpoints;  // steps of those that are there, in order
  RunOptions options;                // empty where there is no config.json

  static constexpr size_t kMostWarnings = 200;
};

// The rows of metrics.jsonl by kind, sorted by step. The last of several rows of a step stays:
// files that were joined, or copied from elsewhere, may have a step twice.
RunData run_of(const std::vector<MetricsRow>& rows);

// Reads a run's folder, or of a run that has no other the file metrics.jsonl alone. A run that
// still writes may be read. Throws MissingInputError if there are no metrics, DataError with path
// and line for what is malformed.
RunData read_run(const std::string& run);

// Those of a run's folder; empty where there is no config.json. Throws DataError.
RunOptions read_run_options(const std::string& run);

// The lines of a metrics.jsonl as CSV (RFC 4180): a header with every key in the order in which
// they come first, then a row a line, empty where a line lacks the key or has null. A last line
// that has no end is left out. Throws DataError with `source` and line, also for more than 1,000
// keys.
std::string csv_of_metrics(std::string_view jsonl, const std::string& source);

}  // namespace shale::models
