#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "shale/base/trace.h"

namespace shale {

// What a rank did and when, as a picture shows it. Times are nanoseconds of one clock.
struct TraceRecord {
  // What is known of a slice beside its name.
  struct About {
    uint64_t flow = 0;         // the same of slices that belong together, on several ranks; 0: none
    bool starts_flow = false;  // no other of them ends before this one begins
    std::vector<std::pair<std::string, int64_t>> numbers = {};
    std::vector<std::pair<std::string, std::string>> texts = {};

    friend bool operator==(const About&, const About&) = default;
  };
  struct Slice {
    int64_t begin = 0;
    int64_t end = 0;
    uint32_t name = 0;   // its place in `names`
    int32_t about = -1;  // its place in `about`; negative: nothing

    friend bool operator==(const Slice&, const Slice&) = default;
  };
  struct Point {
    int64_t time = 0;
    double value = 0;

    friend bool operator==(const Point&, const Point&) = default;
  };

  int rank = 0;
  std::string host = {};
  std::vector<std::string> names = {};
  std::vector<About> about = {};
  // By name. Slices of a track lie beside or inside each other, never across.
  std::map<std::string, std::vector<Slice>> tracks = {};
  std::map<std::string, std::vector<Point>> counters = {};  // by name, which ends in the unit

  friend bool operator==(const TraceRecord&, const TraceRecord&) = default;
};

// Records when scopes begin and end, between start() and stop(); outside of that a scope costs one
// branch. Trace scopes of the thread that called start() are slices of the track "host", nested as
// they are; those of other threads are not recorded. What is over may be added from any thread.
class Timeline final : public Tracer {
 public:
  using Clock = std::chrono::steady_clock;

  // Both outside of all scopes, and on one thread.
  void start();
  void stop();
  bool is_recording() const { return is_recording_; }

  void enter(std::string_view name) override;
  void leave() noexcept override;

  // A scope whose end need not come in order, or at all: close() ends what has been opened since,
  // that one included. On the thread that called start().
  size_t open(std::string_view name);
  void close(size_t opened) noexcept;

  // A slice of another track. Kept only if it ended while recording.
  void add_slice(const std::string& track, std::string_view name, Clock::time_point begin,
                 Clock::time_point end, TraceRecord::About about = {});
  // The value of a counter now.
  void count(const std::string& counter, double value);

  // What was recorded since the last call.
  TraceRecord take();

  static int64_t nanoseconds(Clock::time_point time) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
  }

 private:
  struct Open {
    int64_t begin = 0;
    uint32_t name = 0;
  };
  uint32_t place_of(std::string_view name);  // with the mutex held
  void end_top() noexcept;

  std::atomic<bool> is_recording_ = false;
  std::atomic<std::thread::id> owner_;
  std::mutex mutex_;
  TraceRecord record_;
  std::vector<TraceRecord::Slice> host_;  // of the thread that called start()
  std::deque<std::string> kept_names_;    // what `places_` refers to
  std::unordered_map<std::string_view, uint32_t> places_;
  std::vector<Open> open_;
};

// Where there may be no timeline.
class TimelineScope {
 public:
  TimelineScope(Timeline* timeline, std::string_view name) : timeline_(timeline) {
    if (timeline_ != nullptr) opened_ = timeline_->open(name);
  }
  ~TimelineScope() {
    if (timeline_ != nullptr) timeline_->close(opened_);
  }
  TimelineScope(const TimelineScope&) = delete;
  TimelineScope& operator=(const TimelineScope&) = delete;

 private:
  Timeline* timeline_;
  size_t opened_ = 0;
};

}  // namespace shale
