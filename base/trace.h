#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

namespace shale {

// Adds up times by name. Names are kernel slots and phases of a step ("forward", "comm/wait").
// Thread-safe.
class Tracer {
 public:
  virtual ~Tracer() = default;

  // Called on the thread that enters and leaves a TraceScope, for profilers with nested scopes.
  virtual void enter(std::string_view) {}
  virtual void leave() noexcept {}

  struct Total {
    int64_t calls = 0;
    double seconds = 0;
  };

  void add(std::string_view name, double seconds);
  std::map<std::string, Total, std::less<>> totals() const;
  double seconds(std::string_view name) const;  // 0 if the name is unknown
  void reset();

 private:
  mutable std::mutex mutex_;
  std::map<std::string, Total, std::less<>> totals_;
};

// Adds the time from construction to destruction to `tracer`, which may be null.
class TraceScope {
 public:
  TraceScope(Tracer* tracer, std::string_view name) : tracer_(tracer), name_(name) {
    if (tracer_ == nullptr) return;
    tracer_->enter(name_);
    start_ = std::chrono::steady_clock::now();
  }
  ~TraceScope() {
    if (tracer_ == nullptr) return;
    tracer_->leave();
    tracer_->add(name_,
                 std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count());
  }
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

 private:
  Tracer* tracer_;
  std::string_view name_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace shale
