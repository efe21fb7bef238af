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

// Newest lines of a file, each a JSON object.
struct RunLines {
  Json::Array newest;
  int64_t left_out = 0;    // number of older lines
  int64_t unreadable = 0;  // number of damaged lines; a killed rank may leave one
};

// Contents of a run's folder, for the page and the terminal.
struct RunData {
  std::string name;  // path or name that the user gave
  // The numbers of metrics.jsonl by key, such as "loss", "val_loss" and "tokens_per_s".
  std::map<std::string, Column, std::less<>> columns;
  std::vector<std::pair<int64_t, uint32_t>> loss_bits;  // step, and bits of its loss
  // "running", "saved", "done", "failed"; "killed": status.json says running, but there is no such
  // process; "unknown": there is no status.json, or the run is on another host.
  std::string state = "unknown";
  double silent_s = 0;   // seconds since metrics.jsonl was written
  Json status, options;  // contents of status.json and config.json; null: no such file
  RunLines samples, starts, warnings;
  std::vector<int64_t> checkpoints;   // steps of the existing checkpoints, ascending
  std::vector<std::string> pictures;  // paths of the newest samples/step_N.png; the newest is last

  const Column* column(std::string_view key) const;  // Returns null if no row has the key.
  // Returns the newest known value of the key.
  std::optional<double> newest(std::string_view key) const;
  // Returns what the run counts, such as "tokens"; "items" if that is unknown.
  std::string item() const;
  std::optional<int64_t> steps_wanted() const;  // Returns the value of --steps.
  // Returns an estimate from the newest steps; empty: the run is not running.
  std::optional<double> seconds_left() const;
};

// Adds a line of metrics.jsonl. If the run already has this step, removes all rows from this step
// on first, because a resumed run repeats them. Throws DataError, which begins with `where`, for a
// malformed line, and for more than 1,000 keys.
void add_metrics_row(RunData& run, std::string_view line, const std::string& where);

// Reads a run again and again while it may be writing. Each time it reads only the new rows of
// metrics.jsonl.
class RunReader {
 public:
  explicit RunReader(std::string run);  // run: folder of a run, or the path of a metrics.jsonl.

  // Returns the run as it is now. Throws MissingInputError if there are no metrics, DataError with
  // path and line for malformed lines.
  const RunData& read();

 private:
  void read_metrics();

  const std::string run_, metrics_;
  RunData data_;
  size_t read_ = 0;  // bytes of metrics.jsonl that have been read
  int64_t lines_ = 0;
  std::string newest_line_;  // last line read; if the file has another line there, it was replaced
};

// Converts the lines of a metrics.jsonl to CSV (RFC 4180): a header with all keys in order of their
// first occurrence, then one row per line; missing and null values are empty. Ignores a last line
// without newline. Throws DataError with `source` and line, also for more than 1,000 keys.
std::string csv_of_metrics(std::string_view jsonl, const std::string& source);

}  // namespace shale::models
