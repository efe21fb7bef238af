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

// The collectives of one group that a device has been given and not yet finished, which it runs in
// that order. One thread at a time.
//
// Each is noted as running in the process's recent collectives from when it is the first: only then
// may it run, and behind one that hangs more may wait than that list has room for.
class InFlight {
 public:
  InFlight(RecentCollectives& recent, std::string_view group) : recent_(recent), group_(group) {}

  // bytes: of its larger buffer. finished: whether it has ended; not called again once it has.
  void add(const Fingerprint& call, int64_t bytes, std::function<bool()> finished);
  // Takes away those at the front that have ended, and returns how many.
  int64_t drop_finished();

  bool empty() const { return entries_.empty(); }
  const Fingerprint& first() const { return entries_.front().call; }
  double seconds() const;  // for which the first has been the first

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
  std::optional<RecentCollectives::Scope> running_;  // of the first
  Clock::time_point since_;
};

}  // namespace shale::comm
