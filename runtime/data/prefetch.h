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

// Depth and number of threads of a Prefetcher. Several threads make different batches concurrently:
// the source must be thread-safe, and must give a batch the same values in any order of calls.
struct PrefetchOptions {
  int depth = 2;    // maximum batches ready or being made, at least 1
  int workers = 1;  // threads, at least 1
};

// Threads that make batches before they are needed.
class Prefetcher {
 public:
  explicit Prefetcher(BatchSource source, const PrefetchOptions& options = {});
  // Waits for batches being made.
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // Returns the next batch in the source's order; it stays valid until the next call. Null at the
  // end. If the source throws, this and all later calls rethrow the exception, after the batches
  // made before it. Call it from one thread at a time.
  const Batch* next();

 private:
  struct Slot {
    Batch batch;
    bool ready = false;
  };
  void run();
  // Waits for a free slot. Returns the index of the next batch to make; nullopt: stop.
  std::optional<int64_t> wait_for_slot();
  Slot& slot(int64_t index) { return ring_[static_cast<size_t>(index) % ring_.size()]; }

  BatchSource source_;
  // Ring buffer: batches [taken_, begun_) are ready or being made; the caller holds batch taken_ -
  // 1.
  std::vector<Slot> ring_;
  int64_t begun_ = 0;
  int64_t taken_ = 0;
  int64_t end_ = std::numeric_limits<int64_t>::max();  // first index without a batch
  bool stop_ = false;
  std::exception_ptr failure_;  // reason why batch end_ does not exist
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::thread> threads_;  // must be the last member: the threads use all others
};

}  // namespace shale
