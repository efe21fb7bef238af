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

// Events of one rank over time, for a trace viewer. Times are nanoseconds of one clock.
struct TraceRecord {
  // Details of a slice besides its name.
  struct About {
    uint64_t flow = 0;         // connects slices with the same number, across ranks; 0: none
    bool starts_flow = false;  // no other slice of the flow ends before this one begins
    std::vector<std::pair<std::string, int64_t>> numbers = {};
    std::vector<std::pair<std::string, std::string>> texts = {};

    friend bool operator==(const About&, const About&) = default;
  };
  struct Slice {
    int64_t begin = 0;
    int64_t end = 0;
    uint32_t name = 0;   // index into `names`
    int32_t about = -1;  // index into `about`; negative: none

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
  // Slices by track name. Slices of a track are disjoint or nested; they never overlap partly.
  std::map<std::string, std::vector<Slice>> tracks = {};
  // values by counter; a counter's name ends with its unit
  std::map<std::string, std::vector<Point>> counters = {};

  friend bool operator==(const TraceRecord&, const TraceRecord&) = default;
};

// Puts numbered marks into the streams of a device, which reaches them later. Thread-safe.
class StreamMarks {
 public:
  static constexpr size_t kNone = static_cast<size_t>(-1);

  virtual ~StreamMarks() = default;
  // Returns kNone if the stream cannot have a mark now.
  virtual size_t mark(void* stream) = 0;
};

// Records the begin and end of scopes between start() and stop(); at other times a scope costs one
// branch. Scopes of the thread that called start() become slices of the track "host", nested as
// they are. Scopes of other threads are not recorded. Any thread may add completed slices.
//
// On an asynchronous device, scopes are also slices of the track "device". Such a slice begins when
// the stream reaches the work that was queued in the scope, and ends when it has finished that
// work, by the device's clock.
class Timeline final : public Tracer {
 public:
  using Clock = std::chrono::steady_clock;

  // Other sources of records than the host's clock. They must outlive the recording.
  struct Device {
    StreamMarks* marks = nullptr;  // null: the device runs synchronously with the host
    void* stream = nullptr;        // stream in which scopes queue their work
    Tracer* ranges = nullptr;      // told of each scope too; for example a profiler of the device
  };
  // start() and stop() must be called on one thread, outside of all scopes.
  void start(const Device& device);
  void start() { start({}); }
  void stop();
  bool is_recording() const { return is_recording_; }

  void enter(std::string_view name) override;
  void leave() noexcept override;

  // Begins a scope that may end in any order, or never. close() also ends all scopes that were
  // opened after it. Call both on the thread that called start().
  size_t open(std::string_view name);
  void close(size_t opened) noexcept;

  // Adds a slice to another track. Kept only if it ended while recording.
  void add_slice(const std::string& track, std::string_view name, Clock::time_point begin,
                 Clock::time_point end, TraceRecord::About about = {});
  // Marks a point in a stream's work for add_device_slice(); kNone if Device::marks is null.
  size_t mark(void* stream);
  // Adds a slice between two marks of one stream to another track. The device need not have reached
  // the marks yet. Drops the slice if a mark is kNone.
  void add_device_slice(const std::string& track, std::string_view name, size_t begin, size_t end,
                        TraceRecord::About about = {});
  // Records the current value of a counter.
  void count(const std::string& counter, double value);

  // Returns what was recorded since the last call. time_of returns when the device reached a mark.
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
  uint32_t place_of(std::string_view name);  // called, as is keep(), with the mutex held
  int32_t keep(TraceRecord::About about);
  void end_top() noexcept;

  std::atomic<bool> is_recording_ = false;
  std::atomic<std::thread::id> owner_;
  std::mutex mutex_;
  TraceRecord record_;
  Device device_;
  std::map<std::string, std::vector<Marked>> marked_;  // device slices, by track
  std::vector<TraceRecord::Slice> host_;               // scopes of the thread that called start()
  std::vector<Marked> of_scopes_;  // slices of the scopes in host_, on the device
  std::deque<std::string> kept_names_;                 // owns the names that `places_` refers to
  std::unordered_map<std::string_view, uint32_t> places_;
  std::vector<Open> open_;
};

// A scope that records to `timeline`; does nothing if that is null.
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
