#include "shale/comm/traffic.h"

#include <cstdio>

#include "shale/base/clock.h"
#include "shale/base/text.h"

namespace shale::comm {

std::string_view traffic_name(Traffic traffic) {
  switch (traffic) {
    case Traffic::kParameters: return "parameters";
    case Traffic::kGradients: return "gradients";
    case Traffic::kActivations: return "activations";
    case Traffic::kControl: return "control";
  }
  return "unknown";
}

double ring_bytes(const CollectiveCall& call, int ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  const auto whole = static_cast<double>(call.larger_bytes());
  switch (call.op) {
    case CollectiveOp::kBarrier: return 0;
    case CollectiveOp::kAllReduceSum:
    case CollectiveOp::kAllReduceMax: return 2 * others * whole;
    case CollectiveOp::kReduceScatterSum:
    case CollectiveOp::kAllGather:
    case CollectiveOp::kBroadcast:
    case CollectiveOp::kReduceSum: return others * whole;
    case CollectiveOp::kGather:
    case CollectiveOp::kAllToAll:
    case CollectiveOp::kAllToAllV: return others * static_cast<double>(call.in.bytes());
  }
  return 0;
}

void TrafficMeter::add_call(Traffic traffic, double bytes) {
  {
    const std::lock_guard lock(mutex_);
    TrafficTotals& totals = totals_[static_cast<size_t>(traffic)];
    ++totals.calls;
    totals.sent_bytes += bytes;
  }
  if (parent_ != nullptr) parent_->add_call(traffic, bytes);
}

void TrafficMeter::add_exposed(Traffic traffic, double seconds) {
  {
    const std::lock_guard lock(mutex_);
    totals_[static_cast<size_t>(traffic)].exposed_seconds += seconds;
  }
  if (parent_ != nullptr) parent_->add_exposed(traffic, seconds);
}

void TrafficMeter::add_crossing(Traffic traffic, double bytes) {
  {
    const std::lock_guard lock(mutex_);
    totals_[static_cast<size_t>(traffic)].crossing_bytes += bytes;
  }
  if (parent_ != nullptr) parent_->add_crossing(traffic, bytes);
}

void TrafficMeter::begin_flight() {
  {
    const std::lock_guard lock(mutex_);
    if (flights_++ == 0) flying_since_ = Clock::now();
  }
  if (parent_ != nullptr) parent_->begin_flight();
}

void TrafficMeter::end_flight() {
  {
    const std::lock_guard lock(mutex_);
    if (--flights_ == 0) {
      in_flight_seconds_ += seconds_since(flying_since_);
    }
  }
  if (parent_ != nullptr) parent_->end_flight();
}

double TrafficMeter::in_flight_seconds() const {
  const std::lock_guard lock(mutex_);
  const auto now = flights_ > 0 ? Clock::now() - flying_since_ : Clock::duration::zero();
  return in_flight_seconds_ + std::chrono::duration<double>(now).count();
}

TrafficTotals TrafficMeter::totals(Traffic traffic) const {
  const std::lock_guard lock(mutex_);
  return totals_[static_cast<size_t>(traffic)];
}

TrafficTotals TrafficMeter::totals() const {
  const std::lock_guard lock(mutex_);
  TrafficTotals sum;
  for (const TrafficTotals& totals : totals_) {
    sum.calls += totals.calls;
    sum.sent_bytes += totals.sent_bytes;
    sum.exposed_seconds += totals.exposed_seconds;
    sum.crossing_bytes += totals.crossing_bytes;
  }
  return sum;
}

std::string TrafficMeter::summary() const {
  std::string text = "communication        calls   sent by a rank    exposed\n";
  const auto row = [&](std::string_view name, const TrafficTotals& totals) {
    char line[96];
    std::snprintf(line, sizeof line, "  %-12s %11lld %16s %8.3f s\n", std::string(name).c_str(),
                  static_cast<long long>(totals.calls), format_bytes(totals.sent_bytes).c_str(),
                  totals.exposed_seconds);
    text += line;
  };
  for (int i = 0; i < kTrafficClasses; ++i) {
    const auto traffic = static_cast<Traffic>(i);
    row(traffic_name(traffic), totals(traffic));
  }
  row("total", totals());
  text.pop_back();
  const double crossing = totals().crossing_bytes;
  if (crossing > 0) text += cat("\n  to other nodes ", format_bytes(crossing));
  return text;
}

void TrafficMeter::reset() {
  const std::lock_guard lock(mutex_);
  totals_ = {};
  in_flight_seconds_ = 0;
  flying_since_ = Clock::now();
}

}  // namespace shale::comm
