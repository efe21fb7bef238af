#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

namespace shale {

// Adds up the time spent per name. Names are those of kernel slots and of phases of a step
// ("forward", "comm/wait"). Safe to use from several threads.
class Tracer {
 public:
  virtual ~Tracer() = default;

  // Called on the thread that enters a TraceScope, and leaves it, for a profiler that shows scopes
  // as they are nested.
  virtual void enter(std::string_view) {}
  virtual void leave() noexcept {}

  struct Total {
    int64_t calls = 0;
    double seconds = 0;
  };

  void add(std::string_view name, double seconds);
  std::map<std::string, Total, std::less<>> totals() const;
  double seconds(std::string_view name) const;  // 0 if never seen
  void reset();

 private:
  mutable std::mutex mutex_;
  std::map<std::string, Total, std::less<>> totals_;
};

// Adds the time from construction to destruction to `tracer`, if there is one.
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
