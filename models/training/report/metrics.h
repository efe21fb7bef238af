#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "shale/runtime/io/append_file.h"

namespace shale {

// Expert statistics of a step, over all ranks, layers and experts.
struct ExpertMetrics {
  double tokens_min = 0;  // tokens routed to an expert, including those it drops
  double tokens_mean = 0;
  double tokens_max = 0;
  double dropped_share = 0;  // tokens dropped for lack of capacity / routed tokens

  friend bool operator==(const ExpertMetrics&, const ExpertMetrics&) = default;
};

// Bytes that rank 0 has sent since the previous row, by type of traffic (comm/traffic.h).
struct SentBytes {
  double gradients = 0;
  double parameters = 0;
  double activations = 0;
  // Bytes to other replicas, of all types; empty: there are none.
  std::optional<double> replicas = {};

  friend bool operator==(const SentBytes&, const SentBytes&) = default;
};

// Metrics of an optimizer step. Unknown or non-finite values are null in the file.
struct StepMetrics {
  int64_t step = 0;
  float loss = 0;  // mean over the global batch
  std::optional<double> grad_norm = {};
  std::optional<double> lr = {};
  std::string item = "tokens";        // unit of `items`; part of keys such as "tokens_per_s"
  // Items that all ranks have processed so far, including this step.
  std::optional<int64_t> items = {};
  std::optional<double> items_per_s = {};
  std::optional<double> step_ms = {};
  // Time of waiting for communication with nothing to compute.
  std::optional<double> comm_exposed_ms = {};
  std::optional<double> mfu = {};  // fraction of the device's dense peak, 0 to 1
  std::optional<int64_t> device_peak_bytes = {};
  std::optional<int64_t> host_peak_bytes = {};
  // The file has the remaining values only if they are known.
  std::optional<double> epoch = {};         // epochs done, including this step
  std::optional<double> data_wait_ms = {};  // time that rank 0 waited for input batches
  // Known only in pipelines.
  std::optional<double> bubble_ms = {};  // time that rank 0 waited for other pipeline stages
  std::optional<SentBytes> sent = {};    // only with several ranks
  // Known only with loss scaling.
  std::optional<double> loss_scale = {};      // loss scale of the next step
  std::optional<int64_t> skipped_steps = {};  // steps skipped so far for a non-finite gradient
  // Those of skipped_steps that were skipped for an outlier norm.
  std::optional<int64_t> outlier_steps = {};
  std::optional<ExpertMetrics> experts = {};  // only for MoE models
  // Numbers of the program or task. The key of NAME, which has only a-z and _, is "own_NAME".
  std::map<std::string, double> more = {};

  friend bool operator==(const StepMetrics&, const StepMetrics&) = default;
};

// Metrics of a validation.
struct EvalMetrics {
  int64_t step = 0;
  float val_loss = 0;
  std::optional<double> ema_val_loss = {};  // loss with the averaged weights; empty: there are none
  // Top-k accuracy by k. In the file, "val_top5" is the key for k = 5.
  std::map<int64_t, double> top_k = {};
  std::map<std::string, double> more = {};  // more results by name; the key of NAME is "val_NAME"
  std::string item = "tokens";        // unit of `items`; part of the key "val_tokens"
  std::optional<int64_t> items = {};  // number of items evaluated
  std::optional<double> ms = {};

  friend bool operator==(const EvalMetrics&, const EvalMetrics&) = default;
};

// Minimum, median and maximum of a value over the ranks.
struct Spread {
  double least = 0;
  double median = 0;  // for an even number of ranks, mean of the middle two
  double most = 0;
  int least_rank = 0;  // lowest rank that has this value
  int most_rank = 0;

  friend bool operator==(const Spread&, const Spread&) = default;
};

// Metrics of all ranks since the previous row of this type.
struct RanksMetrics {
  int64_t step = 0;
  int64_t ranks = 0;
  // Values by name. In the file, NAME has five keys: NAME_min, NAME_min_rank, NAME_median,
  // NAME_max, NAME_max_rank. nullopt: unknown, null in the file.
  std::map<std::string, std::optional<Spread>> figures = {};

  friend bool operator==(const RanksMetrics&, const RanksMetrics&) = default;
};

using MetricsRow = std::variant<StepMetrics, EvalMetrics, RanksMetrics>;  // a line of the file

// Returns the row as one line of JSON, with newline. A loss has 9 significant digits, which
// identify a float. `loss_bits` has its bits, even if it is NaN.
std::string to_json_line(const MetricsRow& row);

// Appends rows to a file (append_file.h), one per line.
class MetricsWriter {
 public:
  explicit MetricsWriter(std::string path) : file_(std::move(path)) {}

  void write(const MetricsRow& row) { file_.write(to_json_line(row)); }
  void sync() { file_.sync(); }

 private:
  AppendFile file_;
};

// Reads the rows of a file. Ignores a last line without newline, which a killed run may leave.
// Throws DataError, with path and line, for any other invalid line; MissingInputError if the file
// does not exist.
std::vector<MetricsRow> read_metrics(const std::string& path);
// Parses the text of a metrics file; `source` names it in messages.
std::vector<MetricsRow> parse_metrics(std::string_view text, const std::string& source);

// Reads the rows in the last `bytes` bytes of a file, like read_metrics().
std::vector<MetricsRow> read_newest_metrics(const std::string& path, size_t bytes);

// Removes the rows after `last_step`, so that a resumed run has each step once; the other rows stay
// unchanged byte for byte. Returns the number of rows removed. Reads only these rows and the one
// before them, shortens the file and syncs it. Does nothing if the file does not exist. Rows after
// `last_step` were not synced, so a crash of the machine may have left garbage after them, which is
// removed too. Throws DataError for an invalid line that may be a row of `last_step`, and
// DiskError.
int64_t drop_metrics_after(const std::string& path, int64_t last_step);

}  // namespace shale
