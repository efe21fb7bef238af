#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "shale/comm/fingerprint.h"
#include "shale/comm/hosts/heartbeats.h"
#include "shale/comm/hosts/rank_places.h"
#include "shale/comm/node/shared_memory.h"
#include "shale/comm/node/shm_wait.h"

namespace shale::comm {

// Data that a rank publishes to its node when it enters a collective.
struct Announcement {
  Fingerprint call;
  MemoryRef in;
  MemoryRef out;
  bool staged = false;  // the first chunk of its input is already in its staging area
};

struct ChannelOptions {
  std::vector<int> world_ranks = {};  // World ranks of this node's ranks, for error messages
  std::string group_name = {};
  double timeout_s = 0;
  int64_t staging_bytes = 0;           // bytes of one half of a staging area
  bool crowded = false;                // more ranks than cores
  const RankPlaces* places = nullptr;  // names ranks in messages; outlives the channel
  std::function<void(bool finishing)> poll =
      {};                       // called repeatedly while waiting; throws to give up
  Heartbeats* signs = nullptr;  // asked before a rank is reported missing; outlives the channel
};

// Synchronisation of the ranks of one group on one node: a segment of shared memory with a step
// counter, announcements, and a staging area of two halves for every rank.
//
// All ranks take the same steps. sync() ends a step: a rank advances its own counter and waits
// until all counters have reached it. Between two syncs a rank may write its own announcement or
// staging half and read the data that other ranks wrote before the last sync. Announcements and
// halves alternate, so that data of step t is overwritten in step t+2 at the earliest. A rank
// reaches step t+2 only when all other ranks have ended step t+1, so they have read the data of
// step t.
class NodeChannel {
 public:
  static size_t bytes(int ranks, int64_t staging_bytes);

  // memory: bytes(...), initially zero, shared by the ranks.
  NodeChannel(void* memory, int rank, int ranks, ChannelOptions options);

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  const ChannelOptions& options() const { return options_; }

  Announcement& mine(uint64_t sequence);
  const Announcement& of(int rank, uint64_t sequence) const;

  int64_t staging_bytes() const { return options_.staging_bytes; }
  // Largest input for which one sync and more copying are faster than two syncs (measured). With
  // more ranks than cores, a sync switches between processes, so copies are cheap in comparison.
  int64_t at_once_bytes() const { return options_.crowded ? 64 << 10 : 8 << 10; }
  std::byte* staging(int rank, int half) const;
  int next_half() { return half_ ^= 1; }  // equal on all ranks, because all take the same steps

  // Ends a step: waits until all ranks have ended it. Throws CommError after the time-out, naming
  // the missing ranks, and whatever poll throws. finishing: peers are using this rank's buffers, so
  // poll should throw only if a peer has failed.
  void sync(const Fingerprint& call, bool blocking, bool finishing = false);

  void leave();  // ranks that still wait for this one get an error

  // Ends the use of this channel: every rank that waits now or later gets this error.
  [[noreturn]] void fail(const std::string& report);
  void check() const;  // throws CommError after a rank's fail()
  // Lists these World ranks with their places in the mesh, for messages.
  std::string named(const std::vector<int>& world_ranks) const;

  bool past_deadline(std::chrono::steady_clock::time_point start) const;
  double limit_s() const;  // current maximum wait; 0: no limit
  // Call after the time-out, before naming a missing rank. Throws if a rank has stopped sending
  // heartbeats, because the missing rank may only be waiting for that one.
  void ask_who_lives(bool finishing) const;

 private:
  struct Header;
  struct Slot;
  Header& header() const;
  Slot& slot(int rank) const;
  void poll_peer(int peer, const Fingerprint& call, bool finishing) const;
  [[noreturn]] void fail_missing(uint32_t target, const Fingerprint& call);
  std::string last_call_of(int peer) const;

  std::byte* memory_;
  int rank_;
  int ranks_;
  ChannelOptions options_;
  uint32_t step_ = 0;
  int half_ = 0;
};

}  // namespace shale::comm
