#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "shale/comm/collective.h"

namespace shale::comm {

inline constexpr int kTrafficClasses = 4;
std::string_view traffic_name(Traffic traffic);  // "gradients"

struct TrafficTotals {
  int64_t calls = 0;
  double sent_bytes = 0;       // by this rank, see ring_bytes()
  double exposed_seconds = 0;  // in which the program was blocked: in wait() and blocking calls
  // Of host memory: what this rank did send to other nodes, or NUMA nodes (comm/hosts/topology.h).
  double crossing_bytes = 0;
};

// Bytes that one of `ranks` ranks sends when a collective runs around a ring, the way that sends
// least: all-reduce 2 (N-1)/N of the buffer; reduce-scatter and all-gather (N-1)/N of the whole. As
// means over the ranks: broadcast and reduce (N-1)/N of the buffer, gather (N-1)/N of a slice, an
// all-to-all (N-1)/N of what a rank gives. What a backend
// really sends may differ (ranks of one node send nothing, they share memory): these are the
// numbers by which plans are compared.
double ring_bytes(const CollectiveCall& call, int ranks);

// The accounts of a group and of the groups split from it. Safe for several threads.
class TrafficMeter {
 public:
  void add_call(Traffic traffic, double bytes);
  void add_exposed(Traffic traffic, double seconds);
  void add_crossing(Traffic traffic, double bytes);
  // Between these two a collective is in flight. Backends on host memory call them.
  void begin_flight();
  void end_flight();
  // What is added here is added there too.
  void set_parent(std::shared_ptr<TrafficMeter> parent) { parent_ = std::move(parent); }

  TrafficTotals totals(Traffic traffic) const;
  TrafficTotals totals() const;  // of all classes
  // In which at least one collective was in flight: time in which several were counts once.
  double in_flight_seconds() const;
  std::string summary() const;  // a table, for people
  void reset();

 private:
  using Clock = std::chrono::steady_clock;
  mutable std::mutex mutex_;
  int flights_ = 0;
  Clock::time_point flying_since_;
  double in_flight_seconds_ = 0;
  std::array<TrafficTotals, kTrafficClasses> totals_{};
  std::shared_ptr<TrafficMeter> parent_;
};

// A collective is in flight while this lives.
class FlightScope {
 public:
  explicit FlightScope(std::shared_ptr<TrafficMeter> meter) : meter_(std::move(meter)) {
    meter_->begin_flight();
  }
  ~FlightScope() { meter_->end_flight(); }
  FlightScope(const FlightScope&) = delete;
  FlightScope& operator=(const FlightScope&) = delete;

 private:
  std::shared_ptr<TrafficMeter> meter_;
};

}  // namespace shale::comm
