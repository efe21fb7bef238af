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

// Runs the collectives of a process one after another, in the order in which they were queued.
//
// Queued jobs run on the queue's own thread, which starts with the first job, so that they make
// progress while the program computes. A blocking call runs on the caller's thread if nothing is
// queued before it, because two thread switches take longer than a small collective.
class CommQueue {
 public:
  // blocking: the caller waits, so nothing else computes on this core during the job.
  using Job = std::function<void(bool blocking)>;

  CommQueue() = default;
  ~CommQueue();
  CommQueue(const CommQueue&) = delete;
  CommQueue& operator=(const CommQueue&) = delete;

  // Returns when the job is done; throws what it threw.
  void run(const Job& job, Tracer* tracer);
  Work enqueue(Job job, Tracer* tracer);
  void drain();  // returns when nothing is queued or running
  // Asks queued and running jobs to give up, see cancelled(), then waits like drain().
  void cancel();
  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }

 private:
  void thread_main();
  void run_next(std::unique_lock<std::mutex>& lock);
  void end_job();  // called with the mutex held

  class QueuedWork;
  struct Item {
    Job job;
    std::shared_ptr<QueuedWork> state;
  };
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> items_;
  bool busy_ = false;  // a job is running, on thread_ or on a caller's thread
  bool stop_ = false;
  std::atomic<bool> cancelled_{false};  // reset when nothing is queued or running
  std::thread thread_;
};

}  // namespace shale::comm
