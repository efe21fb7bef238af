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

// Numbers points of what the streams of a device are given to do, which it comes to later. Safe to
// use from several threads.
class StreamMarks {
 public:
  static constexpr size_t kNone = static_cast<size_t>(-1);

  virtual ~StreamMarks() = default;
  // kNone where the stream cannot have one now.
  virtual size_t mark(void* stream) = 0;
};

// Records when scopes begin and end, between start() and stop(); outside of that a scope costs one
// branch. Trace scopes of the thread that called start() are slices of the track "host", nested as
// they are; those of other threads are not recorded. What is over may be added from any thread.
//
// With a device whose work runs later, scopes are also slices of the track "device": from when its
// stream came to what was queued in the scope until it was done with it, by the device's clock.
class Timeline final : public Tracer {
 public:
  using Clock = std::chrono::steady_clock;

  // What is recorded besides the host's times. All outlive the recording.
  struct Device {
    StreamMarks* marks = nullptr;  // null: the device runs as the host calls
    void* stream = nullptr;        // where scopes queue their work
    Tracer* ranges = nullptr;      // is shown the scopes too, such as the device's profiler
  };
  // Both outside of all scopes, and on one thread.
  void start(const Device& device);
  void start() { start({}); }
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
  // A point of a stream's work, for add_device_slice(); kNone where there are no marks.
  size_t mark(void* stream);
  // A slice of another track between two marks of one stream, which it need not have come to yet.
  // Left out if one of them is kNone.
  void add_device_slice(const std::string& track, std::string_view name, size_t begin, size_t end,
                        TraceRecord::About about = {});
  // The value of a counter now.
  void count(const std::string& counter, double value);

  // What was recorded since the last call. time_of: when the device came to a mark.
  TraceRecord take(const std::function<int64_t(size_t)>& time_of);
  TraceRecord take() { return take({}); }

  static int64_t nanoseconds(Clock::time_point time) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
  }

 private:
  struct Open {
    int64_t begin = 0;
    uint32_t name = 0;
    size_t mark = StreamMarks::kNone;
  };
  struct Marked {
    size_t begin = StreamMarks::kNone;
    size_t end = StreamMarks::kNone;
    uint32_t name = 0;
    int32_t about = -1;
  };
  uint32_t place_of(std::string_view name);  // these two with the mutex held
  int32_t keep(TraceRecord::About about);
  void end_top() noexcept;

  std::atomic<bool> is_recording_ = false;
  std::atomic<std::thread::id> owner_;
  std::mutex mutex_;
  TraceRecord record_;
  Device device_;
  std::map<std::string, std::vector<Marked>> marked_;  // by track; slices of a device
  std::vector<TraceRecord::Slice> host_;               // of the thread that called start()
  std::vector<Marked> of_scopes_;                      // the same on the device
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
