#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "shale/runtime/data/batch.h"

namespace shale {

// A thread that makes batches ahead of their use.
class Prefetcher {
 public:
  // `depth` batches, at least 1, wait ready at most.
  explicit Prefetcher(BatchSource source, int depth = 2);
  // Waits for the batch that is being made, if one is.
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // The next batch, in the source's order; it stays as it is until the next call. Null at the end.
  // An exception of the source comes out here, after the batches made before it, in this call and
  // in all later ones. Call it from one thread at a time.
  const Batch* next();

 private:
  void run();
  // Waits until a slot is free; false if it is time to stop.
  bool wait_for_slot();

  BatchSource source_;
  // A ring: batches [taken_, made_) wait in it, and batch taken_ - 1 is in the caller's hands.
  std::vector<Batch> ring_;
  int64_t made_ = 0;
  int64_t taken_ = 0;
  bool ended_ = false;
  bool stop_ = false;
  std::exception_ptr failure_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::thread thread_;  // the last member: it uses all the others
};

}  // namespace shale
