#pragma once

#include <functional>
#include <mutex>
#include <utility>
#include <vector>

namespace shale {

// Handles of a driver's things that take longer to make than to use again, such as events. Safe for
// several threads. Those that were taken and not given back are not the pool's to destroy.
class HandlePool {
 public:
  using Make = std::function<void*()>;
  using Destroy = std::function<void(void*)>;  // throws nothing

  HandlePool(Make make, Destroy destroy) : make_(std::move(make)), destroy_(std::move(destroy)) {}
  ~HandlePool() {
    for (void* handle : unused_) destroy_(handle);
  }
  HandlePool(const HandlePool&) = delete;
  HandlePool& operator=(const HandlePool&) = delete;

  // The one that was given back last, or a new one.
  void* take() {
    const std::lock_guard lock(mutex_);
    if (unused_.empty()) {
      unused_.reserve(made_ + 1);  // so that give() finds room
      void* const handle = make_();
      ++made_;
      return handle;
    }
    void* const handle = unused_.back();
    unused_.pop_back();
    return handle;
  }
  void give(void* handle) noexcept {
    const std::lock_guard lock(mutex_);
    unused_.push_back(handle);
  }

 private:
  Make make_;
  Destroy destroy_;
  std::mutex mutex_;
  std::vector<void*> unused_;
  size_t made_ = 0;
};

}  // namespace shale
