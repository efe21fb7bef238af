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

// Last collectives of this process, over all groups, for reports of lost ranks. Thread-safe.
class RecentCollectives {
 public:
  using Clock = std::chrono::steady_clock;

  struct Entry {
    uint64_t id = 0;  // counts from 1
    std::array<char, 32> group{};
    int first_rank = 0;  // World rank of the first rank; distinguishes groups of one name
    Fingerprint call;
    int64_t bytes = 0;
    Clock::time_point begun;
    Clock::time_point ended;  // not set while the collective is running
    bool running = false;
    bool on_device = false;  // true: times at which the host noticed the progress
  };

  // Records a collective as running during its lifetime.
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

  // Called for each finished collective or message of a link, on the thread that ran it. It must
  // not use this object. When a listener is replaced, a running call of it is waited for, and it is
  // not called again.
  using Listener = std::function<void(const Entry&)>;
  void listen(Listener listener);

  std::vector<Entry> newest_first() const;
  // Returns lines for a report, such as "ended 0.1 s ago: all_reduce_sum 3 of fp32[8], 32 B, group
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
  std::array<Entry, kKept> ring_;  // entry `id` is at id % kKept
};

}  // namespace shale::comm
