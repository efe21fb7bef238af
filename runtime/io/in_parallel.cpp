#include "shale/runtime/io/in_parallel.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace shale {
namespace {

struct Queue {
  const size_t count;
  const std::function<void(size_t i, size_t worker)>& work;
  std::mutex mutex;
  size_t next = 0;
  size_t failed = count;  // lowest index of a failed task; `count` if none failed
  std::exception_ptr error;

  // Returns the index of the next task; `count` if none is left.
  size_t take() {
    const std::lock_guard lock(mutex);
    return next < count ? next++ : count;
  }
  void fail(size_t i, std::exception_ptr why) {
    const std::lock_guard lock(mutex);
    next = count;
    if (i >= failed) return;
    failed = i;
    error = std::move(why);
  }
  void run(size_t worker) {
    for (size_t i = take(); i < count; i = take()) {
      try {
        work(i, worker);
      } catch (...) {
        fail(i, std::current_exception());
      }
    }
  }
};

// Joins the threads on destruction, even after an exception.
struct Helpers {
  Queue& queue;
  std::vector<std::thread> threads = {};

  ~Helpers() {
    for (std::thread& thread : threads) thread.join();
  }
  void start(size_t worker) {
    try {
      threads.emplace_back([&queue = queue, worker] { queue.run(worker); });
    } catch (...) {
      queue.fail(0, std::current_exception());
      throw;
    }
  }
};

}  // namespace

void in_parallel(size_t count, size_t workers,
                 const std::function<void(size_t i, size_t worker)>& work) {
  Queue queue{.count = count, .work = work};
  {
    Helpers helpers{queue};
    for (size_t worker = 1; worker < std::min(workers, count); ++worker) helpers.start(worker);
    queue.run(0);
  }
  if (queue.error != nullptr) std::rethrow_exception(queue.error);
}

}  // namespace shale
