#pragma once

#include <mutex>
#include <set>
#include <utility>

namespace shale {

// Multiprocessors of a GPU that are reserved for collectives in progress. Kernels of the compute
// stream that would fill the GPU leave them free: otherwise a block without a free multiprocessor
// would run after all other blocks have ended. Thread-safe.
class ReservedSms {
 public:
  // Reservation of one collective. It lasts from the call of the collective until the host makes
  // the compute stream wait for it. Both are points in the host's order of calls, which both
  // streams follow.
  class Hold {
   public:
    Hold() = default;
    Hold(ReservedSms& all, int count) : all_(&all), count_(count) { all.add(count); }
    Hold(Hold&& other) noexcept : all_(std::exchange(other.all_, nullptr)), count_(other.count_) {}
    Hold& operator=(Hold&&) = delete;
    ~Hold() { release(); }
    void release() {
      if (all_ != nullptr) std::exchange(all_, nullptr)->remove(count_);
    }

   private:
    ReservedSms* all_ = nullptr;
    int count_ = 0;
  };

  // Maximum number of SMs that one collective reserves. Collectives of a stream run one by one.
  int most() const {
    const std::lock_guard lock(mutex_);
    return counts_.empty() ? 0 : *counts_.rbegin();
  }

 private:
  void add(int count) {
    const std::lock_guard lock(mutex_);
    counts_.insert(count);
  }
  void remove(int count) {
    const std::lock_guard lock(mutex_);
    counts_.erase(counts_.find(count));
  }

  mutable std::mutex mutex_;
  std::multiset<int> counts_;
};

}  // namespace shale
