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
#include "shale/comm/hosts/rank_places.h"
#include "shale/comm/hosts/signs_of_life.h"
#include "shale/comm/node/shared_memory.h"
#include "shale/comm/node/shm_wait.h"

namespace shale::comm {

// What a rank tells the others on its node when it enters a collective.
struct Announcement {
  Fingerprint call;
  MemoryRef in;
  MemoryRef out;
  bool staged = false;  // the first chunk of what it gives is in its staging half
};

struct ChannelOptions {
  std::vector<int> world_ranks = {};  // of the ranks on this node, for messages
  std::string group_name = {};
  double timeout_s = 0;
  int64_t staging_bytes = 0;           // one half
  bool crowded = false;                // more ranks than cores
  const RankPlaces* places = nullptr;  // for messages; outlives the channel
  std::function<void(bool finishing)> poll =
      {};  // called now and then while waiting; throws to give up
  SignsOfLife* signs = nullptr;  // asked before a rank is missed; outlives the channel
};

// The meeting point of the ranks of one group on one node: a segment of shared memory that has, for
// every rank, a step counter, its announcements, and a staging area of two halves.
//
// All ranks take the same steps. sync() ends a step: a rank advances its own counter and waits
// until all counters are there. Between two syncs a rank may write its own announcement or staging
// half and read what others wrote before the last sync. Announcements and halves are used in turn,
// so that what was written for step t is overwritten in t+2 at the earliest; a rank is there only
// when all others have ended t+1, hence have read what they needed of t.
class NodeChannel {
 public:
  static size_t bytes(int ranks, int64_t staging_bytes);

  // memory: bytes(...), zeros, shared by the ranks.
  NodeChannel(void* memory, int rank, int ranks, ChannelOptions options);

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  const ChannelOptions& options() const { return options_; }

  Announcement& mine(uint64_t sequence);
  const Announcement& of(int rank, uint64_t sequence) const;

  int64_t staging_bytes() const { return options_.staging_bytes; }
  std::byte* staging(int rank, int half) const;
  int next_half() { return half_ ^= 1; }  // the same on all ranks, as all take the same steps

  // Throws CommError after the time-out, naming who is missing, and in all cases where poll throws.
  // finishing: peers are using this rank's buffers; poll should throw only if a peer has failed.
  void sync(const Fingerprint& call, bool blocking, bool finishing = false);

  void leave();  // ranks that still wait for this one get an error

  // Ends the use of this channel: every rank that waits, or comes later, gets this error.
  [[noreturn]] void fail(const std::string& report);
  void check() const;  // throws CommError after somebody's fail()
  // These ranks in words, with their places.
  std::string named(const std::vector<int>& world_ranks) const;

  bool past_deadline(std::chrono::steady_clock::time_point start) const;
  double limit_s() const;  // the longest wait now; 0: for ever
  // To be called past the deadline, before anybody is named: throws if a rank is silent, whoever
  // has not come because of it.
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
