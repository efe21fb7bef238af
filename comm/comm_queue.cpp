#include "comm/comm_queue.h"

#include <exception>

namespace shale::comm {

struct WorkState {
  std::atomic<uint32_t> done{0};
  std::exception_ptr error;  // written before done
  Tracer* tracer = nullptr;
  CommQueue* queue = nullptr;  // outlives what is queued in it
};

Work::~Work() {
  if (std::uncaught_exceptions() > 0 && !done()) state_->queue->cancel();
}

bool Work::done() const {
  return state_ == nullptr || state_->done.load(std::memory_order_acquire) != 0;
}

void Work::wait() const {
  if (state_ == nullptr) return;
  if (!done()) {
    const TraceScope scope(state_->tracer, "comm/wait");
    state_->done.wait(0, std::memory_order_acquire);
  }
  if (state_->error) std::rethrow_exception(state_->error);
}

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
  auto state = std::make_shared<WorkState>();
  state->tracer = tracer;
  state->queue = this;
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
  try {
    item.job(/*blocking=*/false);
  } catch (...) {
    item.state->error = std::current_exception();
  }
  item.state->done.store(1, std::memory_order_release);
  item.state->done.notify_all();
  lock.lock();
  end_job();
}

void CommQueue::end_job() {
  busy_ = false;
  if (items_.empty()) cancelled_ = false;
  changed_.notify_all();
}

}  // namespace shale::comm
