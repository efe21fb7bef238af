#include "shale/comm/node/node_channel.h"

#include <algorithm>
#include <cstring>

#include "shale/base/error.h"

namespace shale::comm {

struct NodeChannel::Header {
  std::atomic<uint32_t> claimed;  // a rank has started to report a failure
  std::atomic<uint32_t> broken;   // the report is complete
  char report[4088];
};

struct NodeChannel::Slot {
  SharedCounter step;
  alignas(64) Departure departure;
  std::atomic<uint64_t> called;  // number of collectives announced
  alignas(64) std::array<Announcement, 2> announcements;
};

namespace {

constexpr size_t kPage = 4096;

size_t round_up(size_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

}  // namespace

// Layout: header, slots, and the staging areas, which start at a page boundary.
size_t NodeChannel::bytes(int ranks, int64_t staging_bytes) {
  const auto n = static_cast<size_t>(ranks);
  return round_up(sizeof(Header) + n * sizeof(Slot)) +
         n * 2 * round_up(static_cast<size_t>(staging_bytes));
}

NodeChannel::NodeChannel(void* memory, int rank, int ranks, ChannelOptions options)
    : memory_(static_cast<std::byte*>(memory)),
      rank_(rank),
      ranks_(ranks),
      options_(std::move(options)) {}

void NodeChannel::leave() {
  slot(rank_).departure.leave();
}

NodeChannel::Header& NodeChannel::header() const {
  return *reinterpret_cast<Header*>(memory_);
}

NodeChannel::Slot& NodeChannel::slot(int rank) const {
  return reinterpret_cast<Slot*>(memory_ + sizeof(Header))[rank];
}

Announcement& NodeChannel::mine(uint64_t sequence) {
  slot(rank_).called.store(sequence + 1, std::memory_order_relaxed);
  return slot(rank_).announcements[sequence % 2];
}

const Announcement& NodeChannel::of(int rank, uint64_t sequence) const {
  return slot(rank).announcements[sequence % 2];
}

std::byte* NodeChannel::staging(int rank, int half) const {
  const size_t size = round_up(static_cast<size_t>(options_.staging_bytes));
  const size_t start = round_up(sizeof(Header) + static_cast<size_t>(ranks_) * sizeof(Slot));
  return memory_ + start + size * static_cast<size_t>(2 * rank + half);
}

bool NodeChannel::past_deadline(std::chrono::steady_clock::time_point start) const {
  const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
  return limit_s() > 0 && waited.count() > limit_s();
}

double NodeChannel::limit_s() const {
  return options_.signs != nullptr ? options_.signs->limit(options_.timeout_s) : options_.timeout_s;
}

void NodeChannel::ask_who_lives(bool finishing) const {
  if (options_.signs == nullptr) return;
  options_.signs->wait_for_all([&] {
    check();
    if (options_.poll) options_.poll(finishing);
  });
}

void NodeChannel::sync(const Fingerprint& call, bool blocking, bool finishing) {
  slot(rank_).step.advance_to(++step_);
  const WaitPolicy policy = wait_policy(blocking, options_.crowded);
  for (int i = 1; i < ranks_; ++i) {
    // Each rank starts at another peer, to spread the accesses to the counters' cache lines.
    const int peer = (rank_ + i) % ranks_;
    if (slot(peer).step.reached(step_)) continue;
    const auto poll = [&] { poll_peer(peer, call, finishing); };
    if (slot(peer).step.wait(step_, policy, limit_s(), poll)) continue;
    ask_who_lives(finishing);
    if (!slot(peer).step.reached(step_)) fail_missing(step_, call);
  }
  check();  // throws a failure that a rank has reported, even if all counters have advanced
}

void NodeChannel::poll_peer(int peer, const Fingerprint& call, bool finishing) const {
  check();
  if (options_.poll) options_.poll(finishing);
  const Slot& other = slot(peer);
  if (!other.departure.is_final() || other.step.reached(step_)) return;
  throw CommError(cat("group '", options_.group_name, "': rank ",
                      options_.world_ranks[static_cast<size_t>(peer)], " has left while ",
                      describe(call), " waits for it"));
}

std::string NodeChannel::last_call_of(int peer) const {
  const uint64_t called = slot(peer).called.load(std::memory_order_relaxed);
  if (called == 0) return "none";
  return describe(of(peer, called - 1).call);
}

std::string NodeChannel::named(const std::vector<int>& world_ranks) const {
  return options_.places != nullptr ? options_.places->list(world_ranks) : rank_list(world_ranks);
}

void NodeChannel::fail_missing(uint32_t target, const Fingerprint& call) {
  std::vector<int> missing;
  std::string last;
  for (int peer = 0; peer < ranks_; ++peer) {
    if (slot(peer).step.reached(target)) continue;
    missing.push_back(options_.world_ranks[static_cast<size_t>(peer)]);
    if (last.empty()) last = last_call_of(peer);
  }
  fail(cat("group '", options_.group_name, "': no message from ", named(missing), " for ",
           limit_s(), " s in ", describe(call), "; their last collective: ", last));
}

void NodeChannel::fail(const std::string& report) {
  Header& shared = header();
  if (shared.claimed.exchange(1) == 0) {
    const size_t length = std::min(report.size(), sizeof shared.report - 1);
    std::memcpy(shared.report, report.data(), length);
    shared.report[length] = '\0';
    shared.broken.store(1, std::memory_order_release);
    throw CommError(report);
  }
  // Another rank is already reporting a failure. All ranks throw its report, which will be complete
  // soon.
  const auto start = std::chrono::steady_clock::now();
  while (shared.broken.load(std::memory_order_acquire) == 0 &&
         std::chrono::steady_clock::now() - start < std::chrono::seconds(1)) {
  }
  check();
  throw CommError(report);
}

void NodeChannel::check() const {
  if (header().broken.load(std::memory_order_acquire) != 0) throw CommError(header().report);
}

}  // namespace shale::comm
