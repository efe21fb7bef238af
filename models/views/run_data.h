#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shale/base/json.h"
#include "shale/models/views/curve.h"

namespace shale::models {

// The newest lines of a file, JSON objects.
struct RunLines {
  Json::Array newest;
  int64_t left_out = 0;    // number of older lines
  int64_t unreadable = 0;  // number of damaged lines, as a killed rank leaves them
};

// Contents of a run's folder, for the page and the terminal.
struct RunData {
  std::string name;  // path or name that the user gave
  // The numbers of metrics.jsonl by key, such as "loss", "val_loss" and "tokens_per_s".
  std::map<std::string, Column, std::less<>> columns;
  std::vector<std::pair<int64_t, uint32_t>> loss_bits;  // step, and bits of its loss
  // "running", "saved", "done", "failed"; "killed": status.json says running, but no process does;
  // "unknown": there is no status.json, or the run is on another host.
  std::string state = "unknown";
  double silent_s = 0;   // since metrics.jsonl was written
  Json status, options;  // status.json, config.json; null: no such file
  RunLines samples, starts, warnings;
  std::vector<int64_t> checkpoints;   // steps of the existing checkpoints, ascending
  std::vector<std::string> pictures;  // paths of the newest samples/step_N.png, the newest last

  const Column* column(std::string_view key) const;          // null: no row has the key
  std::optional<double> newest(std::string_view key) const;  // newest known value
  std::string item() const;  // what the run counts: "tokens"; "items" if it is not known
  std::optional<int64_t> steps_wanted() const;  // --steps
  std::optional<double> seconds_left() const;   // estimate by the newest steps; empty: not running
};

// Adds a line of metrics.jsonl. A step that the run has already drops all rows from that step on,
// as a resumed run makes them again. Throws DataError, which begins with `where`, for a malformed
// line, and for more than 1,000 keys.
void add_metrics_row(RunData& run, std::string_view line, const std::string& where);

// Reads a run that may still be writing, again and again, each time only the new rows of
// metrics.jsonl.
class RunReader {
 public:
  explicit RunReader(std::string run);  // a run's folder, or only a metrics.jsonl

  // Returns the run as it is now. Throws MissingInputError if there are no metrics, DataError with
  // path and line for malformed lines.
  const RunData& read();

 private:
  void read_metrics();

  const std::string run_, metrics_;
  RunData data_;
  size_t read_ = 0;  // bytes of metrics.jsonl
  int64_t lines_ = 0;
  std::string newest_line_;  // last line read; a different one there: the file was replaced
};

// Converts the lines of a metrics.jsonl to CSV (RFC 4180): a header with all keys in order of their
// first occurrence, then one row per line; missing and null values are empty. Ignores a last line
// without newline. Throws DataError with `source` and line, also for more than 1,000 keys.
std::string csv_of_metrics(std::string_view jsonl, const std::string& source);

}  // namespace shale::models
