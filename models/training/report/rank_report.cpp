#include "shale/models/training/report/rank_report.h"

#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <limits>
#include <utility>

#include "shale/base/text.h"

namespace shale::models {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
constexpr std::string_view kExposed = "comm_exposed_share_";

double seconds(Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

std::string rank_text(const std::string& value, int rank) {
  return cat(value, " (", rank, ")");
}

}  // namespace

std::optional<Spread> spread_of(std::span<const double> by_rank) {
  const auto is_unknown = [](double value) { return std::isnan(value); };
  if (by_rank.empty() || std::any_of(by_rank.begin(), by_rank.end(), is_unknown)) return {};
  const auto least = std::min_element(by_rank.begin(), by_rank.end());
  const auto most = std::max_element(by_rank.begin(), by_rank.end());
  std::vector<double> sorted(by_rank.begin(), by_rank.end());
  std::sort(sorted.begin(), sorted.end());
  const size_t middle = sorted.size() / 2;
  const double upper = sorted[middle], lower = sorted[(sorted.size() - 1) / 2];
  return Spread{.least = *least,
                .median = lower + (upper - lower) / 2,
                .most = *most,
                .least_rank = static_cast<int>(least - by_rank.begin()),
                .most_rank = static_cast<int>(most - by_rank.begin())};
}

// Measures the time of kernels on the CPU, where they are synchronous. Does not count a kernel
// again that another kernel calls.
class RankReport::KernelTime final : public kernels::CallObserver {
 public:
  explicit KernelTime(Context& context) : observation_(context, *this) {}

  void around(const kernels::SlotCall& call) override {
    if (depth_ > 0) return call.run();
    ++depth_;
    const Clock::time_point start = Clock::now();
    call.run();
    seconds_ += seconds(Clock::now() - start);
    --depth_;
  }
  double so_far() const { return seconds_; }

 private:
  Context::Observation observation_;
  int depth_ = 0;
  double seconds_ = 0;
};

int64_t peak_resident_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    int64_t kib = 0;
    if (word == "VmHWM:" && status >> kib) return kib * 1024;
  }
  rusage usage{};  // used without /proc
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

RankReport::RankReport(Context& context, comm::ProcessGroup& group, std::vector<Axis> axes,
                       std::unique_ptr<GpuSensors> sensors, std::unique_ptr<NcclTime> nccl)
    : context_(context),
      group_(group),
      axes_(std::move(axes)),
      sensors_(std::move(sensors)),
      nccl_(std::move(nccl)) {
  if (sensors_ == nullptr && context.device().type == DeviceType::kCpu)
    kernels_ = std::make_unique<KernelTime>(context);
  begin();
}

RankReport::~RankReport() = default;

RankReport::Mark RankReport::mark() const {
  Mark mark{.time = Clock::now(), .busy = kernels_ != nullptr ? kernels_->so_far() : kUnknown};
  if (sensors_ != nullptr) mark.gpu = sensors_->read();
  mark.nccl = nccl_ != nullptr ? nccl_->seconds() : kUnknown;
  for (const Axis& axis : axes_) {
    const comm::TrafficMeter& meter = axis.group->traffic();
    const bool is_measured = axis.group->backend() != "nccl";
    mark.exposed.push_back(meter.totals().exposed_seconds);
    mark.in_flight.push_back(is_measured ? meter.in_flight_seconds() : kUnknown);
  }
  return mark;
}

void RankReport::begin() {
  begin_ = last_ = mark();
}

std::vector<std::pair<std::string, double>> RankReport::figures(const Mark& from,
                                                                const Mark& to) const {
  const double passed = seconds(to.time - from.time);
  const MemoryStats memory = context_.allocator().stats();
  const auto reserved = static_cast<double>(memory.peak_reserved);
  const auto used = static_cast<double>(memory.peak_allocated);
  std::vector<std::pair<std::string, double>> figures = {
      {"device_peak_bytes", reserved},
      {"device_fragmentation", reserved > 0 ? 1 - used / reserved : 0},
      {"host_peak_bytes", static_cast<double>(peak_resident_bytes())},
      {"device_busy_share", (to.busy - from.busy) / passed}};
  if (sensors_ != nullptr || context_.device().type == DeviceType::kCuda) {
    // Without sensors, `readings` is 0, so the values below are NaN, which means unknown.
    const double readings = to.gpu.readings - from.gpu.readings;
    figures.back().second = (to.gpu.busy - from.gpu.busy) / readings;
    figures.emplace_back("device_watts", (to.gpu.watts - from.gpu.watts) / readings);
    figures.emplace_back("device_celsius", readings > 0 ? to.gpu.celsius : kUnknown);
    figures.emplace_back("device_used_bytes", readings > 0 ? to.gpu.used_bytes : kUnknown);
    figures.emplace_back("device_nccl_share", (to.nccl - from.nccl) / passed);
  }
  for (size_t i = 0; i < axes_.size(); ++i) {
    const std::string& axis = axes_[i].name;
    figures.emplace_back(cat(kExposed, axis), (to.exposed[i] - from.exposed[i]) / passed);
    figures.emplace_back(cat("comm_in_flight_share_", axis),
                         (to.in_flight[i] - from.in_flight[i]) / passed);
  }
  return figures;
}

RanksMetrics RankReport::gather(int64_t step) {
  const Mark now = mark();
  return exchange(step, std::exchange(last_, now), now);
}

RanksMetrics RankReport::gather_whole_run(int64_t step) {
  return exchange(step, begin_, mark());
}

RanksMetrics RankReport::exchange(int64_t step, const Mark& from, const Mark& to) {
  const auto mine = figures(from, to);
  std::vector<double> row;
  for (const auto& [name, value] : mine) row.push_back(value);
  const auto width = static_cast<int64_t>(row.size());
  const auto ranks = static_cast<size_t>(group_.size());
  std::vector<double> rows(row.size() * ranks);
  group_.host().all_gather(make_view(row.data(), {width}),
                           make_view(rows.data(), {width * group_.size()}),
                           {.tag = "figures of all ranks"});
  RanksMetrics metrics{.step = step, .ranks = group_.size()};
  for (size_t i = 0; i < row.size(); ++i) {
    std::vector<double> by_rank;
    for (size_t rank = 0; rank < ranks; ++rank) by_rank.push_back(rows[rank * row.size() + i]);
    metrics.figures[mine[i].first] = spread_of(by_rank);
  }
  return metrics;
}

std::string rank_table(const RanksMetrics& metrics) {
  if (metrics.ranks < 2) return {};
  std::string text = "ranks                              least (rank)     median    most (rank)";
  for (const auto& [name, spread] : metrics.figures) {
    if (!spread) continue;
    const auto value = [&name](double x) {
      if (name.ends_with("_bytes")) return format_bytes(x);
      if (name.ends_with("_watts")) return cat(format_number(std::round(x)), " W");
      if (name.ends_with("_celsius")) return cat(format_number(x), " C");
      return cat(format_number(std::round(1000 * x) / 10), "%");
    };
    char line[128];
    std::snprintf(line, sizeof line, "\n  %-28s %16s %10s %14s", name.c_str(),
                  rank_text(value(spread->least), spread->least_rank).c_str(),
                  value(spread->median).c_str(),
                  rank_text(value(spread->most), spread->most_rank).c_str());
    text += line;
  }
  return text;
}

std::vector<std::string> gpu_warnings(const RanksMetrics& metrics, GpuWarnings& given) {
  const auto known = [&](const char* name) -> std::optional<Spread> {
    const auto found = metrics.figures.find(name);
    return found == metrics.figures.end() ? std::nullopt : found->second;
  };
  std::vector<std::string> warnings;
  const auto percent = [](double share) { return cat(std::lround(100 * share), "%"); };
  if (!known("device_used_bytes")) return warnings;
  const auto is_new = [](bool& kind) { return !std::exchange(kind, true); };
  if (const auto busy = known("device_busy_share");
      busy && busy->least < 0.9 && is_new(given.idle)) {
    warnings.push_back(cat("the GPU of rank ", busy->least_rank, " was busy for ",
                           percent(busy->least), " of the time, expected 90% or more; find out ",
                           "why with --trace"));
  }
  if (const auto exposed = known("comm_exposed_share_all");
      exposed && exposed->most > 0.2 && is_new(given.waiting)) {
    warnings.push_back(cat("rank ", exposed->most_rank, " waited for collectives for ",
                           percent(exposed->most), " of the time, expected 20% or less; compare ",
                           "layouts with shale plan --layouts"));
  }
  if (const auto heat = known("device_celsius"); heat && heat->most > 85 && is_new(given.hot)) {
    warnings.push_back(cat("the GPU of rank ", heat->most_rank, " has ", heat->most,
                           " degrees Celsius, expected 85 or less; it may run slower"));
  }
  if (const auto used = known("device_used_bytes");
      used->least < 0.9 * used->most && is_new(given.uneven)) {
    warnings.push_back(cat("the GPU of rank ", used->most_rank, " has ", format_bytes(used->most),
                           " in use, that of rank ", used->least_rank, " ",
                           format_bytes(used->least), ", expected a difference of 10% or less"));
  }
  return warnings;
}

}  // namespace shale::models
