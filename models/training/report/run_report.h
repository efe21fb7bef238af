#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "shale/models/training/report/metrics.h"
#include "shale/models/training/report/prometheus.h"
#include "shale/models/training/report/samples_file.h"
#include "shale/models/training/report/tensorboard.h"

namespace shale::models {

// What rank 0 tells of a run as it goes: metrics.jsonl, samples.jsonl, and beside them what options
// ask for.
class RunReport {
 public:
  struct Options {
    std::string out;  // --out
    // Whether the run goes on in that folder: it drops what came after `first_step`. A run that
    // begins there renames what an earlier one wrote.
    bool goes_on = false;
    int64_t first_step = 0;
    int ranks = 1;
    OptionValues options = {};
    bool tensorboard = false;
    std::string prometheus = {};  // a file, or an address of PrometheusServer; empty: none
  };
  // Throws DiskError, and what PrometheusServer throws.
  explicit RunReport(const Options& options);

  void write(const MetricsRow& row);
  // The tag is "group/name".
  void write_text(int64_t step, const std::string& tag, std::string_view text);
  void write_histogram(int64_t step, const std::string& tag, const Histogram& histogram);
  void write_image(int64_t step, const std::string& tag, const Image& picture);
  // The run has done its `step` steps.
  void end(int64_t step) { end(step, true); }
  // The same for an error that is on its way: what goes wrong is only logged.
  void end_failed(int64_t step) noexcept;
  // What was written before is on the disk when this returns. May be called on another thread.
  void sync();

 private:
  void end(int64_t step, bool succeeded);

  // Goes first: where it is refused, what an earlier run wrote is as it was.
  std::unique_ptr<PrometheusServer> prometheus_server_;
  MetricsWriter metrics_;
  SamplesFile samples_;
  std::optional<TensorBoardWriter> tensorboard_;
  std::optional<PrometheusFile> prometheus_file_;
  RunGauges gauges_;
};

}  // namespace shale::models
