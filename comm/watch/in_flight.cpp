#include "shale/comm/watch/in_flight.h"

#include "shale/base/clock.h"

namespace shale::comm {

void InFlight::add(const Fingerprint& call, int64_t bytes, std::function<bool()> finished) {
  entries_.push_back({.call = call, .bytes = bytes, .finished = std::move(finished)});
  if (entries_.size() == 1) begin_first();
}

int64_t InFlight::drop_finished() {
  int64_t count = 0;
  for (; !entries_.empty() && entries_.front().finished(); ++count) {
    entries_.pop_front();
    running_.reset();
    if (!entries_.empty()) begin_first();
  }
  return count;
}

double InFlight::seconds() const {
  return seconds_since(since_);
}

void InFlight::begin_first() {
  const Entry& first = entries_.front();
  running_.emplace(recent_, group_, first.call, first.bytes, /*first_rank=*/0, /*on_device=*/true);
  since_ = Clock::now();
}

}  // namespace shale::comm
