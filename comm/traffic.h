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
  double sent_bytes = 0;  // bytes sent by this rank, see ring_bytes()
  double exposed_seconds = 0;  // time for which wait() and blocking calls blocked the program
  // Only for host memory: bytes that were really sent to other hosts or NUMA nodes
  // (comm/hosts/topology.h).
  double crossing_bytes = 0;
};

// Bytes that one of N = `ranks` ranks sends if a collective uses a ring, the algorithm that sends
// the fewest bytes. All-reduce: 2 (N-1)/N of the buffer. Reduce-scatter and all-gather: (N-1)/N of
// the whole. Broadcast and reduce: (N-1)/N of the buffer, as a mean over the ranks. Gather: (N-1)/N
// of a slice, as a mean. All-to-all: (N-1)/N of a rank's input. Use the result to compare plans. A
// backend may send another amount: ranks of one node share memory and send nothing.
double ring_bytes(const CollectiveCall& call, int ranks);

// Traffic statistics of a group and of the groups split from it. Thread-safe.
class TrafficMeter {
 public:
  void add_call(Traffic traffic, double bytes);
  void add_exposed(Traffic traffic, double seconds);
  void add_crossing(Traffic traffic, double bytes);
  // Mark the start and end of a collective. Called by backends on host memory.
  void begin_flight();
  void end_flight();
  // From now on, also adds everything to `parent`.
  void set_parent(std::shared_ptr<TrafficMeter> parent) { parent_ = std::move(parent); }

  TrafficTotals totals(Traffic traffic) const;
  TrafficTotals totals() const;  // sum of all classes
  // Time in which at least one collective was in flight; overlapping collectives count once.
  double in_flight_seconds() const;
  std::string summary() const;  // a table to print
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

// Marks a collective as in flight during its lifetime.
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
