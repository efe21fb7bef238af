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

// The newest of what a run knows of itself.
struct RunGauges {
  std::string run = {};  // the label of all samples
  std::optional<StepMetrics> step = {};
  std::optional<EvalMetrics> eval = {};
  std::optional<RanksMetrics> ranks = {};
};

// As Prometheus' text format 0.0.4 (prometheus.io/docs/instrumenting/exposition_formats), in base
// units. What is not known is left out. docs/monitoring.md lists the names.
std::string prometheus_text(const RunGauges& gauges);

// A file of metrics for the textfile collector of node_exporter, replaced as a whole, at most once
// in `kSeconds`. What cannot be written is a warning, once: training goes on unwatched.
class PrometheusFile {
 public:
  static constexpr double kSeconds = 1;

  explicit PrometheusFile(std::string path) : path_(std::move(path)) {}

  // Writes if it is time, or at once.
  void update(const RunGauges& gauges, bool at_once = false);

 private:
  const std::string path_;
  std::optional<std::chrono::steady_clock::time_point> written_;
  bool warned_ = false;
};

// Whether --prometheus names a file, NAME.prom, and not an address that PrometheusServer takes.
// Throws ConfigError if it is neither.
bool is_prometheus_file(const std::string& where);

// Answers GET and HEAD of /metrics over HTTP, on a thread of its own, which sleeps between
// requests. A client has two seconds for all of its request; others and the destructor do not wait
// for it. On the loopback interface, a request whose Host is another name than localhost is
// refused, so that pages of other sites cannot read metrics through a browser.
class PrometheusServer {
 public:
  // `address`: "PORT" on the loopback interface, or "IPV4:PORT"; port 0 takes a free one. Throws
  // ConfigError for another text, UnavailableError where it cannot listen.
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
  int wake_[2] = {-1, -1};  // a pipe whose end of file ends the thread
  int port_ = 0;
  bool serves_loopback_ = false;
  std::mutex mutex_;
  RunGauges gauges_;
  std::thread thread_;
};

}  // namespace shale::models
