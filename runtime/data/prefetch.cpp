#include "shale/runtime/data/prefetch.h"

#include <utility>

#include "shale/base/error.h"

namespace shale {

Prefetcher::Prefetcher(BatchSource source, int depth) : source_(std::move(source)) {
  if (depth < 1) throw InternalError(cat("prefetcher: depth ", depth, ", want at least 1"));
  ring_.resize(static_cast<size_t>(depth) + 1);  // one is the caller's
  thread_ = std::thread([this] { run(); });
}

Prefetcher::~Prefetcher() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

bool Prefetcher::wait_for_slot() {
  std::unique_lock lock(mutex_);
  // Made but not taken, and the one that the caller holds: the rest of the ring is free.
  const auto capacity = static_cast<int64_t>(ring_.size()) - 1;
  changed_.wait(lock, [&] { return stop_ || made_ - taken_ < capacity; });
  return !stop_;
}

void Prefetcher::run() {
  bool more = true;
  for (int64_t index = 0; more && wait_for_slot(); ++index) {
    std::exception_ptr failure;
    try {
      // Without the lock: nobody else touches this slot until made_ says that it is ready.
      more = source_(index, ring_[static_cast<size_t>(index) % ring_.size()]);
    } catch (...) {
      failure = std::current_exception();
      more = false;
    }
    {
      const std::lock_guard lock(mutex_);
      if (more) ++made_;
      ended_ = !more;
      failure_ = failure;
    }
    changed_.notify_all();
  }
}

const Batch* Prefetcher::next() {
  const Batch* batch = nullptr;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return made_ > taken_ || ended_; });
    if (made_ == taken_) {
      if (failure_) std::rethrow_exception(failure_);
      return nullptr;
    }
    batch = &ring_[static_cast<size_t>(taken_) % ring_.size()];
    ++taken_;
  }
  changed_.notify_all();
  return batch;
}

}  // namespace shale
