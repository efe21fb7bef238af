#include "shale/models/training/report/run_report.h"

#include <exception>
#include <variant>

#include "shale/base/error.h"
#include "shale/base/log.h"
#include "shale/models/training/output_folder.h"
#include "shale/models/training/report/starts_file.h"
#include "shale/models/training/report/utc_time.h"

namespace shale::models {
namespace {

// Returns the path of NAME.jsonl for a new or resumed run. In a resumed run, `read` checks the
// file. If that fails, the file is renamed and a new one is begun, because the state of the run
// does not depend on it.
template <typename Read>
std::string file_of(const RunReport::Options& options, const char* name, const Read& read) {
  const std::string path = file_in(options.out, cat(name, ".jsonl"));
  if (!options.goes_on) return fresh_file(options.out, name);
  try {
    read(path);
    return path;
  } catch (const DataError& error) {
    log_warning(error.what(), "; the file was renamed to ", name,
                ".NUMBER.jsonl, and a new one started");
    return fresh_file(options.out, name);
  }
}

std::string metrics_file(const RunReport::Options& options) {
  return file_of(options, "metrics",
                 [&](const auto& path) { drop_metrics_after(path, options.first_step); });
}

void set(RunGauges& gauges, const StepMetrics& row) {
  gauges.step = row;
}
void set(RunGauges& gauges, const EvalMetrics& row) {
  gauges.eval = row;
}
void set(RunGauges& gauges, const RanksMetrics& row) {
  gauges.ranks = row;
}

}  // namespace

RunReport::RunReport(const Options& options)
    : prometheus_server_(options.prometheus.empty() || is_prometheus_file(options.prometheus)
                             ? nullptr
                             : std::make_unique<PrometheusServer>(options.prometheus)),
      metrics_(metrics_file(options)),
      samples_(file_of(options, "samples", read_samples), options.first_step),
      gauges_{.run = options.out} {
  if (options.tensorboard) {
    tensorboard_.emplace(
        TensorBoardWriter::Options{.folder = file_in(options.out, "tensorboard"),
                                   .first_step = options.goes_on ? options.first_step : 0,
                                   .options = options.options});
  }
  add_start(file_of(options, "starts", read_starts), {.step = options.first_step,
                                                      .ranks = options.ranks,
                                                      .time = utc_now(),
                                                      .device = options.device,
                                                      .parameters = options.parameters});
  if (!options.prometheus.empty() && prometheus_server_ == nullptr) {
    prometheus_file_.emplace(options.prometheus);
  }
  // Restores the latest metrics from before the restart.
  if (options.goes_on && (prometheus_file_ || prometheus_server_ != nullptr)) {
    constexpr size_t kNewest = 4 << 20;  // bytes, i.e. some 10,000 rows
    for (const MetricsRow& row :
         read_newest_metrics(file_in(options.out, "metrics.jsonl"), kNewest)) {
      std::visit([this](const auto& metrics) { set(gauges_, metrics); }, row);
    }
    if (prometheus_server_ != nullptr) prometheus_server_->update(gauges_);
  }
  if (prometheus_server_ != nullptr) {
    log_info("serving metrics for Prometheus on port ", prometheus_server_->port());
  }
}

void RunReport::write(const MetricsRow& row) {
  metrics_.write(row);
  if (tensorboard_) tensorboard_->write(row);
  if (!prometheus_file_ && !prometheus_server_) return;
  std::visit([this](const auto& metrics) { set(gauges_, metrics); }, row);
  if (prometheus_file_) prometheus_file_->update(gauges_);
  if (prometheus_server_) prometheus_server_->update(gauges_);
}

void RunReport::write_text(int64_t step, const std::string& tag, std::string_view text) {
  const bool is_new = samples_.write({.step = step, .tag = tag, .text = std::string(text)});
  if (tensorboard_ && is_new) tensorboard_->write_text(step, tag, text);
}

void RunReport::write_image(int64_t step, const std::string& tag, const Image& picture) {
  if (tensorboard_) tensorboard_->write_image(step, tag, picture);
}

void RunReport::end(int64_t step, bool succeeded) {
  if (succeeded) sync();  // throws if a failing disk has not taken all rows
  if (tensorboard_) tensorboard_->end(step, succeeded);
  if (prometheus_file_) prometheus_file_->update(gauges_, true);
}

void RunReport::end_failed(int64_t step) noexcept {
  try {
    end(step, false);
  } catch (const std::exception& error) {
    log_error(error.what());
  }
}

void RunReport::sync() {
  metrics_.sync();
  if (tensorboard_) tensorboard_->sync();
}

}  // namespace shale::models
