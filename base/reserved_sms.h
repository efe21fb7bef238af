#pragma once

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <utility>

namespace shale {

// Multiprocessors of a GPU, and how many of them collectives reserve. Kernels of the compute stream
// that would fill the GPU leave these free. Otherwise a block without a free multiprocessor would
// run after all other blocks have ended. Thread-safe.
class ReservedSms {
 public:
  // Reservation of one collective. It lasts from the call of the collective until the host makes
  // the compute stream wait for it. Both streams follow the order of the host's calls.
  class Hold {
   public:
    Hold() = default;
    // Collectives of one `stream` run one after another, so only their largest `count` matters;
    // counts of several streams are added. `planned`: the reservation counts for planned() instead
    // of most().
    Hold(ReservedSms& all, int count, const void* stream = nullptr, bool planned = false)
        : all_(&all), counts_(planned ? &all.planned_ : &all.now_), stream_(stream), count_(count) {
      const std::lock_guard lock(all.mutex_);
      (*counts_)[stream].insert(count);
    }
    Hold(Hold&& other) noexcept
        : all_(std::exchange(other.all_, nullptr)),
          counts_(other.counts_),
          stream_(other.stream_),
          count_(other.count_) {}
    Hold& operator=(Hold&&) = delete;
    ~Hold() { release(); }
    void release() {
      if (all_ == nullptr) return;
      const std::lock_guard lock(std::exchange(all_, nullptr)->mutex_);
      auto& counts = counts_->at(stream_);
      counts.erase(counts.find(count_));
    }

   private:
    ReservedSms* all_ = nullptr;
    std::map<const void*, std::multiset<int>>* counts_ = nullptr;
    const void* stream_ = nullptr;
    int count_ = 0;
  };

  // Number of SMs that the collectives in flight reserve at most.
  int most() const { return sum_of(now_); }
  // Number of SMs that collectives of this run will reserve at most. Plans of kernels leave them
  // free. It changes only when groups and links are made.
  int planned() const { return sum_of(planned_); }

  // Number of SMs of the smallest GPU of all ranks; 0: not set, use the number of the GPU model.
  int total() const {
    const std::lock_guard lock(mutex_);
    return total_;
  }
  void limit(int total) {
    const std::lock_guard lock(mutex_);
    total_ = total_ == 0 ? total : std::min(total_, total);
  }

 private:
  using Counts = std::map<const void*, std::multiset<int>>;  // key: stream
  int sum_of(const Counts& counts) const {
    const std::lock_guard lock(mutex_);
    int sum = 0;
    for (const auto& [stream, held] : counts) sum += held.empty() ? 0 : *held.rbegin();
    return sum;
  }

  mutable std::mutex mutex_;
  Counts now_, planned_;
  int total_ = 0;
};

}  // namespace shale
