#include "shale/comm/comm_queue.h"

#include <exception>

#include "shale/comm/work_state.h"

namespace shale::comm {

// A queued collective.
class CommQueue::QueuedWork final : public WorkState {
 public:
  QueuedWork(CommQueue& queue, Tracer* tracer) : queue_(queue), tracer_(tracer) {}

  bool done() const override { return done_.load(std::memory_order_acquire) != 0; }
  void wait() override {
    if (!done()) {
      const TraceScope scope(tracer_, "comm/wait");
      done_.wait(0, std::memory_order_acquire);
    }
    if (error_) std::rethrow_exception(error_);
  }
  void give_up() override { queue_.cancel(); }

  void finish(std::exception_ptr error) {
    error_ = std::move(error);
    done_.store(1, std::memory_order_release);
    done_.notify_all();
  }

 private:
  CommQueue& queue_;  // must outlive the work queued in it
  Tracer* tracer_;
  std::atomic<uint32_t> done_{0};
  std::exception_ptr error_;  // written before done_
};

CommQueue::~CommQueue() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void CommQueue::run(const Job& job, Tracer* tracer) {
  std::unique_lock lock(mutex_);
  if (busy_ || !items_.empty()) {
    lock.unlock();
    enqueue(job, tracer).wait();
    return;
  }
  busy_ = true;
  lock.unlock();

  struct Release {
    CommQueue& queue;
    ~Release() {
      const std::lock_guard guard(queue.mutex_);
      queue.end_job();
    }
  };
  const Release release{*this};
  const TraceScope scope(tracer, "comm/wait");
  job(/*blocking=*/true);
}

Work CommQueue::enqueue(Job job, Tracer* tracer) {
  auto state = std::make_shared<QueuedWork>(*this, tracer);
  {
    const std::lock_guard lock(mutex_);
    items_.push_back({.job = std::move(job), .state = state});
    if (!thread_.joinable()) thread_ = std::thread([this] { thread_main(); });
  }
  changed_.notify_all();
  return Work(std::move(state));
}

void CommQueue::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !busy_ && items_.empty(); });
}

void CommQueue::cancel() {
  std::unique_lock lock(mutex_);
  if (busy_ || !items_.empty()) cancelled_ = true;
  changed_.wait(lock, [this] { return !busy_ && items_.empty(); });
}

void CommQueue::thread_main() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || (!busy_ && !items_.empty()); });
    if (stop_) return;
    run_next(lock);
  }
}

void CommQueue::run_next(std::unique_lock<std::mutex>& lock) {
  Item item = std::move(items_.front());
  items_.pop_front();
  busy_ = true;
  lock.unlock();
  std::exception_ptr error;
  try {
    item.job(/*blocking=*/false);
  } catch (...) {
    error = std::current_exception();
  }
  item.state->finish(std::move(error));
  lock.lock();
  end_job();
}

void CommQueue::end_job() {
  busy_ = false;
  if (items_.empty()) cancelled_ = false;
  changed_.notify_all();
}

}  // namespace shale::comm
