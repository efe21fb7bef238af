#include "shale/runtime/data/prefetch.h"

#include <utility>

#include "shale/base/error.h"

namespace shale {

Prefetcher::Prefetcher(BatchSource source, const PrefetchOptions& options)
    : source_(std::move(source)) {
  for (const auto& [name, value] : {std::pair("depth", options.depth),
                                    {"workers", options.workers}}) {
    if (value < 1)
      throw InternalError(cat("prefetcher: ", name, " ", value, ", expected at least 1"));
  }
  // one more slot, for the batch that the caller has
  ring_.resize(static_cast<size_t>(options.depth) + 1);
  for (int i = 0; i < options.workers; ++i) threads_.emplace_back([this] { run(); });
}

Prefetcher::~Prefetcher() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

std::optional<int64_t> Prefetcher::wait_for_slot() {
  std::unique_lock lock(mutex_);
  // A slot is in use from the time when its batch is begun until the caller has finished using it.
  const auto capacity = static_cast<int64_t>(ring_.size()) - 1;
  changed_.wait(lock, [&] { return stop_ || begun_ >= end_ || begun_ - taken_ < capacity; });
  if (stop_ || begun_ >= end_) return {};
  slot(begun_).ready = false;
  return begun_++;
}

void Prefetcher::run() {
  while (const std::optional<int64_t> index = wait_for_slot()) {
    bool more = false;
    std::exception_ptr failure;
    try {
      // Makes the batch without holding the lock: no other thread uses this slot until the batch is
      // ready.
      more = source_(*index, slot(*index).batch);
    } catch (...) {
      failure = std::current_exception();
    }
    {
      const std::lock_guard lock(mutex_);
      slot(*index).ready = true;
      // The lowest index wins: an earlier batch may still be in progress, and the source may end
      // there.
      if (!more && *index < end_) {
        end_ = *index;
        failure_ = failure;
      }
    }
    changed_.notify_all();
  }
}

const Batch* Prefetcher::next() {
  const Batch* batch = nullptr;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] {
      return taken_ >= end_ || (taken_ < begun_ && slot(taken_).ready);
    });
    if (taken_ >= end_) {
      if (failure_) std::rethrow_exception(failure_);
      return nullptr;
    }
    batch = &slot(taken_).batch;
    ++taken_;
  }
  changed_.notify_all();
  return batch;
}

}  // namespace shale
