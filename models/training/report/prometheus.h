#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

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
// docs/howto/monitoring.md lists the names.
std::string prometheus_text(const RunGauges& gauges);

// File of metrics for the textfile collector of node_exporter, replaced atomically at most once
// every `kSeconds`. A failed write gives a single warning; training continues.
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

// Serves GET and HEAD of /metrics over HTTP, on a thread that sleeps between requests. A client has
// two seconds for its whole request; neither other clients nor the destructor wait for it. On the
// loopback interface, requests with a Host header other than localhost are refused, so that pages
// of other sites cannot read metrics through a browser.
class PrometheusServer {
 public:
  // `address`: "PORT" on the loopback interface, or "IPV4:PORT"; port 0 chooses a free one. Throws
  // ConfigError for invalid text, UnavailableError if it cannot listen.
  explicit PrometheusServer(const std::string& address);
  ~PrometheusServer();
  PrometheusServer(const PrometheusServer&) = delete;
  PrometheusServer& operator=(const PrometheusServer&) = delete;

  int port() const { return port_; }
  void update(const RunGauges& gauges);

 private:
  void serve();
  std::string answer(std::string_view request);

  int listener_ = -1;
  int wake_[2] = {-1, -1};  // pipe whose end of file ends the thread
  int port_ = 0;
  bool serves_loopback_ = false;
  std::mutex mutex_;
  RunGauges gauges_;
  std::thread thread_;
};

}  // namespace shale::models
