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

// Reports of rank 0 during a run: metrics.jsonl, samples.jsonl, and optional formats.
class RunReport {
 public:
  struct Options {
    std::string out;  // folder of the run
    // True: the run resumes in this folder, and rows after `first_step` are removed. False: files
    // of an earlier run in the folder are renamed.
    bool goes_on = false;
    int64_t first_step = 0;
    int ranks = 1;
    std::string device = {};  // see RunStart::device
    int64_t parameters = 0;   // see RunStart::parameters
    OptionValues options = {};
    bool tensorboard = false;
    // Value of --prometheus: a file, or an address for PrometheusServer; empty: none.
    std::string prometheus = {};
  };
  // Throws DiskError, and what PrometheusServer throws.
  explicit RunReport(const Options& options);

  void write(const MetricsRow& row);
  // Writes a text under a tag of the form "group/name".
  void write_text(int64_t step, const std::string& tag, std::string_view text);
  void write_image(int64_t step, const std::string& tag, const Image& picture);
  // Call it after the last step, when the run has done `step` steps.
  void end(int64_t step) { end(step, true); }
  // Ends the report of a run that fails. Only logs errors of the report.
  void end_failed(int64_t step) noexcept;
  // Syncs earlier rows to the disk. Can be called on any thread.
  void sync();

 private:
  void end(int64_t step, bool succeeded);

  // Constructed before the files: if its address is refused, the files of an earlier run stay
  // unchanged.
  std::unique_ptr<PrometheusServer> prometheus_server_;
  MetricsWriter metrics_;
  SamplesFile samples_;
  std::optional<TensorBoardWriter> tensorboard_;
  std::optional<PrometheusFile> prometheus_file_;
  RunGauges gauges_;
};

}  // namespace shale::models
