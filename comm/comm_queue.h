#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "shale/base/trace.h"
#include "shale/comm/work.h"

namespace shale::comm {

// Runs the collectives of a process one after another, in the order in which they were given.
//
// Queued ones run on a thread of their own, started by the first of them; it exists because nothing
// else makes progress while the program computes. A blocking call with nothing before it runs on
// the caller: two thread switches take longer than a small collective.
class CommQueue {
 public:
  // `blocking`: nobody computes on this core meanwhile.
  using Job = std::function<void(bool blocking)>;

  CommQueue() = default;
  ~CommQueue();
  CommQueue(const CommQueue&) = delete;
  CommQueue& operator=(const CommQueue&) = delete;

  // Returns when the job is done; throws what it threw.
  void run(const Job& job, Tracer* tracer);
  Work enqueue(Job job, Tracer* tracer);
  void drain();  // returns when nothing is queued or running
  // The same, after jobs have been told to give up.
  void cancel();
  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }

 private:
  void thread_main();
  void run_next(std::unique_lock<std::mutex>& lock);
  void end_job();  // with the mutex held

  class QueuedWork;
  struct Item {
    Job job;
    std::shared_ptr<QueuedWork> state;
  };
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> items_;
  bool busy_ = false;  // a job is running, here or on a caller
  bool stop_ = false;
  std::atomic<bool> cancelled_{false};  // until nothing is queued or running
  std::thread thread_;
};

}  // namespace shale::comm
