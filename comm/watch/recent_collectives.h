#pragma once

#include <array>
#include <chrono>
#include <cstdint>
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
    Fingerprint call;
    int64_t bytes = 0;
    Clock::time_point begun;
    Clock::time_point ended;  // of one that runs: not set
    bool running = false;
  };

  // From construction to destruction a collective runs.
  class Scope {
   public:
    Scope(RecentCollectives& recent, std::string_view group, const Fingerprint& call, int64_t bytes)
        : recent_(recent), id_(recent.begin(group, call, bytes)) {}
    ~Scope() { recent_.end(id_); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    RecentCollectives& recent_;
    uint64_t id_;
  };

  std::vector<Entry> newest_first() const;
  // What a report prints, a line each: "done: all_reduce_sum 3 of fp32[8] for 'x', 32 B, in group
  // 'world'".
  std::vector<std::string> describe_all() const;

 private:
  static constexpr size_t kKept = 8;
  uint64_t begin(std::string_view group, const Fingerprint& call, int64_t bytes);
  void end(uint64_t id);

  mutable std::mutex mutex_;
  uint64_t count_ = 0;
  std::array<Entry, kKept> ring_;  // collective `id` is at id % kKept
};

}  // namespace shale::comm
