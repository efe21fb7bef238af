#include "shale/models/training/report/prometheus.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <utility>

#include "shale/base/error.h"
#include "shale/base/log.h"
#include "shale/base/parse.h"
#include "shale/base/text.h"

namespace shale::models {
namespace {

std::string number_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  std::array<char, 32> buffer{};
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  return {buffer.data(), result.ptr};
}

std::string escaped_label(std::string_view value) {
  std::string text;
  for (const char c : value) {
    if (c == '\\' || c == '"') text += '\\';
    text += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return text;
}

class Page {
 public:
  explicit Page(std::string_view run) : run_(cat("run=\"", escaped_label(run), "\"")) {}

  // Begins a metric family. help: text with the unit.
  void family(std::string name, std::string_view type, std::string_view help) {
    name_ = std::move(name);
    head_ = cat("# HELP ", name_, " ", help, "\n# TYPE ", name_, " ", type, "\n");
  }
  void sample(std::optional<double> value, const std::string& labels = {}) {
    if (!value) return;
    text_ += std::exchange(head_, {});
    text_ +=
        cat(name_, "{", run_, labels.empty() ? "" : ",", labels, "} ", number_text(*value), "\n");
  }
  void sample(std::optional<int64_t> value) {
    if (value) sample(std::optional(static_cast<double>(*value)));
  }
  void gauge(const std::string& name, std::string_view help, std::optional<double> value) {
    family(name, "gauge", help);
    sample(value);
  }
  const std::string& text() const { return text_; }

 private:
  const std::string run_;
  std::string name_;
  std::string head_;  // header of the metric family; empty once it is written
  std::string text_;
};

std::optional<double> seconds(std::optional<double> ms) {
  return ms ? std::optional(*ms / 1e3) : std::nullopt;
}

void add_step(Page& page, const StepMetrics& m) {
  page.gauge("shale_step", "Optimizer steps done.", static_cast<double>(m.step));
  page.gauge("shale_loss", "Mean training loss of the step.", double{m.loss});
  page.gauge("shale_grad_norm", "L2 norm of the gradient before clipping.", m.grad_norm);
  page.gauge("shale_learning_rate", "Learning rate of the step.", m.lr);
  page.family(cat("shale_", m.item, "_total"), "counter",
              "Number that all ranks have trained on so far.");
  page.sample(m.items);
  page.gauge(cat("shale_", m.item, "_per_second"), "Throughput of all ranks.", m.items_per_s);
  page.gauge("shale_step_seconds", "Time of the step.", seconds(m.step_ms));
  page.gauge("shale_comm_exposed_seconds", "Part of the step spent waiting for other ranks.",
             seconds(m.comm_exposed_ms));
  page.gauge("shale_mfu_ratio", "Model FLOP/s divided by the peak FLOP/s of the devices.", m.mfu);
  page.family("shale_memory_peak_bytes", "gauge", "Peak memory of rank 0 so far.");
  if (m.device_peak_bytes) {
    page.sample(static_cast<double>(*m.device_peak_bytes), "kind=\"device\"");
  }
  if (m.host_peak_bytes) page.sample(static_cast<double>(*m.host_peak_bytes), "kind=\"host\"");
  page.gauge("shale_loss_scale", "Loss scale of the next step.", m.loss_scale);
  page.family("shale_skipped_steps_total", "counter",
              "Steps skipped for an overflow or an outlier.");
  page.sample(m.skipped_steps);
  if (!m.experts) return;
  page.family("shale_expert_tokens", "gauge", "Tokens per expert in the step.");
  page.sample(m.experts->tokens_min, "of=\"min\"");
  page.sample(m.experts->tokens_mean, "of=\"mean\"");
  page.sample(m.experts->tokens_max, "of=\"max\"");
  page.gauge("shale_dropped_share", "Share of routed tokens dropped because an expert was full.",
             m.experts->dropped_share);
}

void add_ranks(Page& page, const RanksMetrics& m) {
  page.gauge("shale_ranks", "Ranks of the run.", static_cast<double>(m.ranks));
  for (const auto& [name, spread] : m.figures) {
    if (!spread) continue;
    page.family(cat("shale_rank_", name), "gauge",
                "Minimum, median and maximum of all ranks since the previous report.");
    page.sample(spread->least, "of=\"min\"");
    page.sample(spread->median, "of=\"median\"");
    page.sample(spread->most, "of=\"max\"");
  }
}

}  // namespace

std::string prometheus_text(const RunGauges& gauges) {
  Page page(gauges.run);
  if (gauges.step) add_step(page, *gauges.step);
  if (gauges.eval) {
    page.gauge("shale_validation_step", "Steps done at the newest validation.",
               static_cast<double>(gauges.eval->step));
    page.gauge("shale_validation_loss", "Mean validation loss.", double{gauges.eval->val_loss});
    page.gauge("shale_validation_seconds", "Time of the validation.", seconds(gauges.eval->ms));
  }
  if (gauges.ranks) add_ranks(page, *gauges.ranks);
  return page.text();
}

void PrometheusFile::update(const RunGauges& gauges, bool at_once) {
  const auto now = std::chrono::steady_clock::now();
  if (!at_once && written_ && now - *written_ < std::chrono::duration<double>(kSeconds)) return;
  written_ = now;
  const std::string text = prometheus_text(gauges);
  // The temporary file is not synced, because its values are useless after a crash of the machine.
  // Its name must not end in ".prom", because the collector reads all files with this ending.
  const std::string temporary = cat(path_, ".", getpid(), ".tmp");
  FILE* const file = std::fopen(temporary.c_str(), "we");
  bool written = file != nullptr;
  if (written) {
    written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
    written = std::fclose(file) == 0 && written;
    written = written && std::rename(temporary.c_str(), path_.c_str()) == 0;
  }
  if (written) return;
  const int error = errno;
  if (file != nullptr) unlink(temporary.c_str());
  if (std::exchange(warned_, true)) return;
  log_warning(path_, ": cannot be written: ", std::strerror(error),
              "; training continues without metrics for Prometheus");
}

bool is_prometheus_file(const std::string& where) {
  if (where.ends_with(".prom") && names_a_path(where)) return true;
  if (!is_http_address(where)) {
    throw ConfigError(
        cat("--prometheus: expected NAME.prom, PORT or IPV4:PORT, found ", excerpt(where)));
  }
  return false;
}

PrometheusServer::PrometheusServer(const std::string& address)
    : server_(address, [this](std::string_view path) -> std::optional<HttpServer::Page> {
        if (path != "/metrics" && path != "/") return std::nullopt;
        RunGauges gauges;
        {
          const std::lock_guard lock(mutex_);
          gauges = gauges_;
        }
        return HttpServer::Page{"text/plain; version=0.0.4; charset=utf-8",
                                prometheus_text(gauges)};
      }) {}

void PrometheusServer::update(const RunGauges& gauges) {
  const std::lock_guard lock(mutex_);
  gauges_ = gauges;
}

}  // namespace shale::models
