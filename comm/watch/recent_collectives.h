#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "shale/comm/fingerprint.h"

namespace shale::comm {

// The last collectives of this process, in all groups: what a report shows when ranks lose each
// other. Safe to use from several threads.
class RecentCollectives {
 public:
  using Clock = std::chrono::steady_clock;

  struct Entry {
    uint64_t id = 0;  // counts from 1
    std::array<char, 32> group{};
    int first_rank = 0;  // of the group, in the World: tells groups of one name apart
    Fingerprint call;
    int64_t bytes = 0;
    Clock::time_point begun;
    Clock::time_point ended;  // of one that runs: not set
    bool running = false;
    bool on_device = false;  // its times are when the host saw that a device was so far
  };

  // From construction to destruction a collective runs.
  class Scope {
   public:
    Scope(RecentCollectives& recent, std::string_view group, const Fingerprint& call, int64_t bytes,
          int first_rank = 0, bool on_device = false)
        : recent_(recent), id_(recent.begin(group, call, bytes, first_rank, on_device)) {}
    ~Scope() { recent_.end(id_); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    RecentCollectives& recent_;
    uint64_t id_;
  };

  // Gets each collective, and message of a link, once it has ended, on the thread that ran it; an
  // empty one ends it, and no call is under way then. It must not use this object.
  using Listener = std::function<void(const Entry&)>;
  void listen(Listener listener);

  std::vector<Entry> newest_first() const;
  // What a report prints, a line each: "done: all_reduce_sum 3 of fp32[8] for 'x', 32 B, in group
  // 'world'".
  std::vector<std::string> describe_all() const;

 private:
  static constexpr size_t kKept = 8;
  uint64_t begin(std::string_view group, const Fingerprint& call, int64_t bytes, int first_rank,
                 bool on_device);
  void end(uint64_t id);

  mutable std::mutex mutex_;
  Listener listener_;
  uint64_t count_ = 0;
  std::array<Entry, kKept> ring_;  // collective `id` is at id % kKept
};

}  // namespace shale::comm
