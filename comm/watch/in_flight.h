#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "shale/comm/watch/recent_collectives.h"

namespace shale::comm {

// Collectives of one group that a device has queued and not yet finished, in the device's order.
// One thread at a time may use it.
//
// Only the first of them is recorded as running in the process's recent collectives. The others
// cannot run yet, and that list could not hold all collectives behind a hanging one.
class InFlight {
 public:
  InFlight(RecentCollectives& recent, std::string_view group) : recent_(recent), group_(group) {}

  // bytes: size of the larger buffer. finished: returns true once the call has ended, and is not
  // called again after that.
  void add(const Fingerprint& call, int64_t bytes, std::function<bool()> finished);
  // Removes finished calls from the front. Returns their number.
  int64_t drop_finished();

  bool empty() const { return entries_.empty(); }
  const Fingerprint& first() const { return entries_.front().call; }
  double seconds() const;  // time since the oldest call became first()

 private:
  using Clock = std::chrono::steady_clock;
  struct Entry {
    Fingerprint call;
    int64_t bytes = 0;
    std::function<bool()> finished;
  };
  void begin_first();

  RecentCollectives& recent_;
  std::string group_;
  std::deque<Entry> entries_;
  std::optional<RecentCollectives::Scope> running_;  // record of the first call as running
  Clock::time_point since_;
};

}  // namespace shale::comm
