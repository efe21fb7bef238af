#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <limits>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "shale/runtime/data/batch.h"

namespace shale {

// Options of a Prefetcher. If there are several threads, they make different batches concurrently.
// Then the source must be thread-safe, and the values of a batch must not depend on the order of
// calls.
struct PrefetchOptions {
  int depth = 2;    // maximum number of batches that are ready or being made, at least 1
  int workers = 1;  // number of threads, at least 1
};

// Makes batches on threads before they are needed.
class Prefetcher {
 public:
  explicit Prefetcher(BatchSource source, const PrefetchOptions& options = {});
  // Waits until the batches that are being made are complete.
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // Returns the next batch in the source's order; it stays valid until the next call. Returns null
  // at the end. If the source throws, next() first returns the batches made before; then this and
  // all later calls throw that exception. Call it from one thread at a time.
  const Batch* next();

 private:
  struct Slot {
    Batch batch;
    bool ready = false;
  };
  void run();
  // Waits for a free slot. Returns the index of the next batch to make; nullopt if the thread must
  // stop.
  std::optional<int64_t> wait_for_slot();
  Slot& slot(int64_t index) { return ring_[static_cast<size_t>(index) % ring_.size()]; }

  BatchSource source_;
  // Ring buffer of batches. Batches [taken_, begun_) are ready or being made. The caller uses batch
  // taken_ - 1.
  std::vector<Slot> ring_;
  int64_t begun_ = 0;
  int64_t taken_ = 0;
  // index at which the batches end; unknown at first
  int64_t end_ = std::numeric_limits<int64_t>::max();
  bool stop_ = false;
  // exception of the source, to be thrown after the last batch; null: none
  std::exception_ptr failure_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::thread> threads_;  // must be the last member, because the threads use all others
};

}  // namespace shale
