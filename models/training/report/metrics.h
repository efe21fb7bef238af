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

// What mixtures of experts did in a step, of all ranks, layers and experts.
struct ExpertMetrics {
  double tokens_min = 0;  // that chose an expert, dropped ones too
  double tokens_mean = 0;
  double tokens_max = 0;
  double dropped_share = 0;  // of the choices, for want of capacity

  friend bool operator==(const ExpertMetrics&, const ExpertMetrics&) = default;
};

// What rank 0 has sent since the row before, by class, in bytes (comm/traffic.h).
struct SentBytes {
  double gradients = 0;
  double parameters = 0;
  double activations = 0;
  std::optional<double> replicas = {};  // of all classes, to other replicas; where there are some

  friend bool operator==(const SentBytes&, const SentBytes&) = default;
};

// One optimizer step. What is not known, or not finite, is null in the file.
struct StepMetrics {
  int64_t step = 0;
  float loss = 0;  // mean over the global batch
  std::optional<double> grad_norm = {};
  std::optional<double> lr = {};
  std::string item = "tokens";        // what is counted; a key of the file, as "tokens_per_s" is
  std::optional<int64_t> items = {};  // seen so far by all ranks, this step's included
  std::optional<double> items_per_s = {};
  std::optional<double> step_ms = {};
  std::optional<double> comm_exposed_ms = {};  // waiting for other ranks with nothing to compute
  std::optional<double> mfu = {};              // of the device's dense peak, 0 to 1
  std::optional<int64_t> device_peak_bytes = {};
  std::optional<int64_t> host_peak_bytes = {};
  // Only in the file when known: what reads its data ahead.
  std::optional<double> data_wait_ms = {};  // rank 0, waiting for batches that were not there yet
  // Pipelines.
  std::optional<double> bubble_ms = {};  // rank 0, waiting for other stages
  std::optional<SentBytes> sent = {};    // several ranks
  // Runs with loss scaling.
  std::optional<double> loss_scale = {};      // of the next step
  std::optional<int64_t> skipped_steps = {};  // so far, for a gradient that was not finite
  std::optional<int64_t> outlier_steps = {};  // of the skipped ones, for the gradient's norm
  std::optional<ExpertMetrics> experts = {};  // models with mixtures

  friend bool operator==(const StepMetrics&, const StepMetrics&) = default;
};

// A validation.
struct EvalMetrics {
  int64_t step = 0;
  float val_loss = 0;
  std::optional<double> ema_val_loss = {};  // of the average of the weights; only when known
  // By k: the share of items whose class is among the k likeliest; "val_top5" is a key of the file.
  std::map<int64_t, double> top_k = {};
  std::string item = "tokens";        // what is counted; "val_tokens" is a key of the file
  std::optional<int64_t> items = {};  // that were evaluated
  std::optional<double> ms = {};

  friend bool operator==(const EvalMetrics&, const EvalMetrics&) = default;
};

// A figure that each rank has: the least and the most of them, and whose they are.
struct Spread {
  double least = 0;
  double median = 0;  // of an even number of ranks, the mean of the two in the middle
  double most = 0;
  int least_rank = 0;  // the lowest such rank
  int most_rank = 0;

  friend bool operator==(const Spread&, const Spread&) = default;
};

// What all ranks have to say of the steps since the last such row.
struct RanksMetrics {
  int64_t step = 0;
  int64_t ranks = 0;
  // By name, of which a figure has five keys: name_min, name_min_rank, name_median, name_max,
  // name_max_rank. nullopt: not known, null in the file.
  std::map<std::string, std::optional<Spread>> figures = {};

  friend bool operator==(const RanksMetrics&, const RanksMetrics&) = default;
};

using MetricsRow = std::variant<StepMetrics, EvalMetrics, RanksMetrics>;

// The row as one line of JSON, with its newline. A loss has 9 significant digits, which identify a
// float; `loss_bits` has its bits, also those of a NaN.
std::string to_json_line(const MetricsRow& row);

// Appends rows to a file (append_file.h), a line each.
class MetricsWriter {
 public:
  explicit MetricsWriter(std::string path) : file_(std::move(path)) {}

  void write(const MetricsRow& row) { file_.write(to_json_line(row)); }
  void sync() { file_.sync(); }

 private:
  AppendFile file_;
};

// The rows of a file. A last line without a newline is what a killed run leaves, and is left out;
// any other line that is not a row is DataError with path and line. MissingInputError if there is
// no such file.
std::vector<MetricsRow> read_metrics(const std::string& path);
// The same of a file's text; `source` is what messages call it.
std::vector<MetricsRow> parse_metrics(std::string_view text, const std::string& source);

// Keeps the rows up to and including `last_step`, byte for byte, so that a resumed run has each
// step once. Returns how many it dropped. The file is replaced as a whole and is on disk when this
// returns; a file that does not exist stays so. Throws like read_metrics and DiskError; but behind
// the row of `last_step`, where nothing was synced, a machine that stopped may leave anything: a
// line there that is not a row is dropped with all that follows.
int64_t drop_metrics_after(const std::string& path, int64_t last_step);

}  // namespace shale
