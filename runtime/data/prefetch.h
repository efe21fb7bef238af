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

// How far ahead a Prefetcher is, and by how many threads. Several make different batches at a time:
// the source is then called from all of them, and gives a batch the same values whatever the order.
struct PrefetchOptions {
  int depth = 2;    // batches, at least 1, that wait ready at most, or are being made
  int workers = 1;  // threads, at least 1
};

// Threads that make batches ahead of their use.
class Prefetcher {
 public:
  explicit Prefetcher(BatchSource source, const PrefetchOptions& options = {});
  // Waits for the batches that are being made.
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // The next batch, in the source's order; it stays as it is until the next call. Null at the end.
  // An exception of the source comes out here, after the batches made before it, in this call and
  // in all later ones. Call it from one thread at a time.
  const Batch* next();

 private:
  struct Slot {
    Batch batch;
    bool ready = false;
  };
  void run();
  // The number of the next batch to be made, once there is a free slot; nothing: it is time to stop.
  std::optional<int64_t> wait_for_slot();
  Slot& slot(int64_t index) { return ring_[static_cast<size_t>(index) % ring_.size()]; }

  BatchSource source_;
  // A ring: batches [taken_, begun_) wait in it or are being made, and batch taken_ - 1 is in the
  // caller's hands.
  std::vector<Slot> ring_;
  int64_t begun_ = 0;
  int64_t taken_ = 0;
  int64_t end_ = std::numeric_limits<int64_t>::max();  // the first batch that there is not
  bool stop_ = false;
  std::exception_ptr failure_;  // why there is no batch end_
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::thread> threads_;  // the last member: they use all the others
};

}  // namespace shale
