#include "shale/comm/watch/heartbeat_table.h"

#include <algorithm>

namespace shale::comm {

// One cache line per rank, because each rank writes its own all the time. The step is stored plus
// one, because the memory starts as zeros.
struct alignas(64) HeartbeatTable::Slot {
  std::atomic<uint64_t> beats;
  std::atomic<int64_t> step_plus_one;
  std::atomic<uint64_t> view;
};

struct alignas(64) HeartbeatTable::Header {
  std::atomic<int32_t> failure_elsewhere;
  std::atomic<int32_t> failing_plus_one;
};

size_t HeartbeatTable::bytes(int ranks) {
  return sizeof(Header) + sizeof(Slot) * static_cast<size_t>(ranks);
}

HeartbeatTable::Header& HeartbeatTable::header() const {
  return *static_cast<Header*>(memory_);
}

HeartbeatTable::Slot& HeartbeatTable::slot(int rank) const {
  return reinterpret_cast<Slot*>(static_cast<std::byte*>(memory_) + sizeof(Header))[rank];
}

Heartbeat HeartbeatTable::get(int rank) const {
  const Slot& from = slot(rank);
  return {.beats = from.beats.load(std::memory_order_acquire),
          .step = from.step_plus_one.load(std::memory_order_relaxed) - 1};
}

void HeartbeatTable::put(int rank, const Heartbeat& heartbeat) {
  Slot& to = slot(rank);
  uint64_t before = to.beats.load(std::memory_order_relaxed);
  while (before < heartbeat.beats &&
         !to.beats.compare_exchange_weak(before, heartbeat.beats, std::memory_order_release)) {
  }
  if (before < heartbeat.beats) {
    to.step_plus_one.store(heartbeat.step + 1, std::memory_order_relaxed);
  }
}

void HeartbeatTable::set_step(int rank, int64_t step) {
  slot(rank).step_plus_one.store(step + 1, std::memory_order_relaxed);
}

int HeartbeatTable::failure_elsewhere() const {
  return header().failure_elsewhere.load(std::memory_order_relaxed);
}

int HeartbeatTable::failing_elsewhere() const {
  return header().failing_plus_one.load(std::memory_order_relaxed) - 1;
}

// Keeps the lowest failing rank. Processes of a node that call this at the same time may overwrite
// it; the lowest rank then arrives again.
void HeartbeatTable::set_failure_elsewhere(int code, int failing_rank) {
  Header& to = header();
  to.failure_elsewhere.store(code, std::memory_order_relaxed);
  const int known = failing_elsewhere();
  if (failing_rank < 0 || (known >= 0 && known <= failing_rank)) return;
  to.failing_plus_one.store(failing_rank + 1, std::memory_order_relaxed);
}

uint64_t HeartbeatTable::view(int rank) const {
  return slot(rank).view.load(std::memory_order_acquire);
}

void HeartbeatTable::set_view(int rank, uint64_t view) {
  slot(rank).view.store(view, std::memory_order_release);
}

void Silence::look(const HeartbeatTable& table, double elapsed_s, double longest_s) {
  for (size_t r = 0; r < ranks_.size(); ++r) {
    Rank& rank = ranks_[r];
    const uint64_t beats = table.get(static_cast<int>(r)).beats;
    rank.silent_s = beats != rank.beats ? 0 : rank.silent_s + std::min(elapsed_s, longest_s);
    rank.beats = beats;
  }
}

std::vector<int> Silence::silent_for(double seconds) const {
  std::vector<int> silent;
  for (size_t r = 0; r < ranks_.size(); ++r) {
    if (ranks_[r].beats > 0 && ranks_[r].silent_s > seconds) silent.push_back(static_cast<int>(r));
  }
  return silent;
}

double Silence::longest() const {
  double longest_s = 0;
  for (const Rank& rank : ranks_) {
    if (rank.beats > 0) longest_s = std::max(longest_s, rank.silent_s);
  }
  return longest_s;
}

std::vector<int> Silence::never_heard() const {
  std::vector<int> ranks;
  for (size_t r = 0; r < ranks_.size(); ++r) {
    if (ranks_[r].beats == 0) ranks.push_back(static_cast<int>(r));
  }
  return ranks;
}

}  // namespace shale::comm
