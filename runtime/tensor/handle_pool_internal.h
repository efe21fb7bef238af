#pragma once

#include <functional>
#include <mutex>
#include <utility>
#include <vector>

namespace shale {

// Pool of driver handles, such as events, that are cheaper to reuse than to create. Thread-safe.
// The pool does not destroy handles that are in use.
class HandlePool {
 public:
  using Make = std::function<void*()>;
  using Destroy = std::function<void(void*)>;  // must not throw

  HandlePool(Make make, Destroy destroy) : make_(std::move(make)), destroy_(std::move(destroy)) {}
  ~HandlePool() {
    for (void* handle : unused_) destroy_(handle);
  }
  HandlePool(const HandlePool&) = delete;
  HandlePool& operator=(const HandlePool&) = delete;

  // Returns the handle that was given back last, or a new one.
  void* take() {
    const std::lock_guard lock(mutex_);
    if (unused_.empty()) {
      unused_.reserve(made_ + 1);  // reserves memory now, so that give() never has to allocate
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
