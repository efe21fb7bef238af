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
  double tokens_min = 0;  // tokens routed to an expert, including dropped ones
  double tokens_mean = 0;
  double tokens_max = 0;
  double dropped_share = 0;  // tokens dropped for lack of capacity / routed tokens

  friend bool operator==(const ExpertMetrics&, const ExpertMetrics&) = default;
};

// Bytes that rank 0 has sent since the previous row, by class (comm/traffic.h).
struct SentBytes {
  double gradients = 0;
  double parameters = 0;
  double activations = 0;
  std::optional<double> replicas = {};  // sum over classes, to other replicas; empty: none

  friend bool operator==(const SentBytes&, const SentBytes&) = default;
};

// Metrics of an optimizer step. Unknown or non-finite values are null in the file.
struct StepMetrics {
  int64_t step = 0;
  float loss = 0;  // mean over the global batch
  std::optional<double> grad_norm = {};
  std::optional<double> lr = {};
  std::string item = "tokens";        // unit of `items`; part of keys such as "tokens_per_s"
  std::optional<int64_t> items = {};  // processed so far by all ranks, including this step
  std::optional<double> items_per_s = {};
  std::optional<double> step_ms = {};
  std::optional<double> comm_exposed_ms = {};  // waiting for communication with nothing to compute
  std::optional<double> mfu = {};              // relative to the device's dense peak, 0 to 1
  std::optional<int64_t> device_peak_bytes = {};
  std::optional<int64_t> host_peak_bytes = {};
  // The remaining values are written to the file only if they are known.
  std::optional<double> epoch = {};         // epochs done, including this step
  std::optional<double> data_wait_ms = {};  // time that rank 0 waited for input batches
  // Known only in pipelines.
  std::optional<double> bubble_ms = {};  // time that rank 0 waited for other pipeline stages
  std::optional<SentBytes> sent = {};    // only with several ranks
  // Known only with loss scaling.
  std::optional<double> loss_scale = {};      // loss scale of the next step
  std::optional<int64_t> skipped_steps = {};  // steps skipped so far for a non-finite gradient
  std::optional<int64_t> outlier_steps = {};  // part of skipped_steps, for an outlier norm
  std::optional<ExpertMetrics> experts = {};  // only for MoE models
  // Numbers of the program or task, by names of a-z and _; "own_NAME" is the key.
  std::map<std::string, double> more = {};

  friend bool operator==(const StepMetrics&, const StepMetrics&) = default;
};

// Metrics of a validation.
struct EvalMetrics {
  int64_t step = 0;
  float val_loss = 0;
  std::optional<double> ema_val_loss = {};  // loss with the averaged weights; empty: unknown
  // Top-k accuracy by k. In the file, "val_top5" is the key for k = 5.
  std::map<int64_t, double> top_k = {};
  std::map<std::string, double> more = {};  // further figures by name; "val_NAME" is the key
  std::string item = "tokens";        // unit of `items`; part of the key "val_tokens"
  std::optional<int64_t> items = {};  // number of items evaluated
  std::optional<double> ms = {};

  friend bool operator==(const EvalMetrics&, const EvalMetrics&) = default;
};

// Minimum, median and maximum of a figure over the ranks.
struct Spread {
  double least = 0;
  double median = 0;  // mean of the middle two for an even number of ranks
  double most = 0;
  int least_rank = 0;  // lowest rank that has this value
  int most_rank = 0;

  friend bool operator==(const Spread&, const Spread&) = default;
};

// Metrics of all ranks since the previous row of this kind.
struct RanksMetrics {
  int64_t step = 0;
  int64_t ranks = 0;
  // Figures by name. In the file a figure has five keys: name_min, name_min_rank, name_median,
  // name_max, name_max_rank. nullopt: unknown, null in the file.
  std::map<std::string, std::optional<Spread>> figures = {};

  friend bool operator==(const RanksMetrics&, const RanksMetrics&) = default;
};

using MetricsRow = std::variant<StepMetrics, EvalMetrics, RanksMetrics>;  // a line of the file

// Returns the row as one line of JSON, with newline. A loss has 9 significant digits, which
// identify a float; `loss_bits` has its bits, also for a NaN.
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

// Reads the rows of a file. A last line without newline, as a killed run leaves it, is ignored; any
// other invalid line is a DataError with path and line. Throws MissingInputError if the file does
// not exist.
std::vector<MetricsRow> read_metrics(const std::string& path);
// Parses the text of a metrics file; `source` names it in messages.
std::vector<MetricsRow> parse_metrics(std::string_view text, const std::string& source);

// Reads the rows in the last `bytes` bytes of a file, like read_metrics().
std::vector<MetricsRow> read_newest_metrics(const std::string& path, size_t bytes);

// Keeps the rows up to and including `last_step`, byte for byte, so that a resumed run has each
// step once. Returns the number of rows dropped. Reads only these rows and the one before them,
// shortens the file and syncs it; a missing file stays missing. Rows after `last_step` were not
// synced, so a crash of the machine may leave garbage there: it is dropped too. Throws DataError
// for an invalid line that may be a row of `last_step`, and DiskError.
int64_t drop_metrics_after(const std::string& path, int64_t last_step);

}  // namespace shale
