#pragma once

#include <mutex>
#include <set>
#include <utility>

namespace shale {

// Multiprocessors of a GPU that collectives under way hold. Kernels of the compute stream that
// would fill the GPU leave them free: a block without a multiprocessor of its own waits until all
// others have ended. Safe for several threads.
class HeldMultiprocessors {
 public:
  // A collective's, from its call to the compute stream's wait for it: the order of calls is what
  // both streams go by, whenever the device gets there.
  class Hold {
   public:
    Hold() = default;
    Hold(HeldMultiprocessors& all, int count) : all_(&all), count_(count) { all.add(count); }
    Hold(Hold&& other) noexcept : all_(std::exchange(other.all_, nullptr)), count_(other.count_) {}
    Hold& operator=(Hold&&) = delete;
    ~Hold() { release(); }
    void release() {
      if (all_ != nullptr) std::exchange(all_, nullptr)->remove(count_);
    }

   private:
    HeldMultiprocessors* all_ = nullptr;
    int count_ = 0;
  };

  // The most that one collective holds: those of a stream run one after the other.
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
