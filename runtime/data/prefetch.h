#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace shale {

// A micro-batch of token sequences in host memory. [rows, seq_len], row-major.
struct Batch {
  int64_t rows = 0;
  int64_t seq_len = 0;
  int64_t first_position = 0;  // of row 0 among the samples of all ranks
  int64_t count = 0;           // rows that hold a sample; the rest is padding
  std::vector<int32_t> inputs;
  std::vector<int32_t> targets;

  void resize(int64_t new_rows, int64_t new_seq_len);
};

// Makes batch `index` = 0, 1, 2, ... in memory that is used again. Returns false at the end.
using BatchSource = std::function<bool(int64_t index, Batch& batch)>;

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
