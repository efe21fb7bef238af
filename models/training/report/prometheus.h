#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "shale/models/training/report/http_server.h"
#include "shale/models/training/report/metrics.h"

namespace shale::models {

// Latest metrics of a run.
struct RunGauges {
  std::string run = {};  // label of all samples
  std::optional<StepMetrics> step = {};
  std::optional<EvalMetrics> eval = {};
  std::optional<RanksMetrics> ranks = {};
};

// Formats gauges as Prometheus text format 0.0.4
// (prometheus.io/docs/instrumenting/exposition_formats), in base units. Omits unknown values.
// docs/howto/watch.md lists the names.
std::string prometheus_text(const RunGauges& gauges);

// File of metrics for the textfile collector of node_exporter. It is replaced atomically, at most
// once every `kSeconds`. The first failed write logs a warning; training continues.
class PrometheusFile {
 public:
  static constexpr double kSeconds = 1;

  explicit PrometheusFile(std::string path) : path_(std::move(path)) {}

  // Writes if kSeconds have passed, or if `at_once`.
  void update(const RunGauges& gauges, bool at_once = false);

 private:
  const std::string path_;
  std::optional<std::chrono::steady_clock::time_point> written_;
  bool warned_ = false;
};

// Returns true if --prometheus names a file, NAME.prom; false if it is an address for
// PrometheusServer. Throws ConfigError if it is neither.
bool is_prometheus_file(const std::string& where);

// Serves /metrics over HTTP (http_server.h).
class PrometheusServer {
 public:
  // Throws what HttpServer does.
  explicit PrometheusServer(const std::string& address);

  int port() const { return server_.port(); }
  void update(const RunGauges& gauges);

 private:
  std::mutex mutex_;
  RunGauges gauges_;
  HttpServer server_;  // must be the last member, because its thread uses the others
};

}  // namespace shale::models
