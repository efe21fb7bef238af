#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "shale/base/device.h"

namespace shale {

// When the streams of a device came to certain points of their work, by the device's own clock.
// Setting a mark waits for nothing; marks are read when the device has passed them, and what took
// their times on the device is then used again for others. One thread at a time.
class StreamClock {
 public:
  using HostClock = std::chrono::steady_clock;

  virtual ~StreamClock() = default;
  StreamClock(const StreamClock&) = delete;
  StreamClock& operator=(const StreamClock&) = delete;

  // What the stream was given so far is done when it passes the mark. Returns the mark's number.
  size_t mark(void* stream);
  // Reads the marks that have been passed, up to the first that has not. Streams may be behind each
  // other.
  void read();
  // Waits until all marks have been passed, and reads them.
  void read_all();
  // Seconds from one mark to another, negative if that was passed first. Both have been read, or
  // passed.
  double seconds(size_t from, size_t to);
  void forget_marks();  // numbers start anew; waits for those that have not been passed

 protected:
  StreamClock() = default;

  // A point of a stream's work that keeps its time.
  struct Point {
    virtual ~Point() = default;
  };
  virtual std::unique_ptr<Point> make_point() = 0;
  virtual void record(Point& point, void* stream) = 0;  // one that was recorded before, too
  virtual bool passed(const Point& point) = 0;
  virtual void wait(const Point& point, void* stream) = 0;
  virtual double seconds_between(const Point& from, const Point& to) = 0;  // both passed

 private:
  struct Pending {
    std::shared_ptr<Point> point;
    void* stream;
  };
  struct Last {
    std::shared_ptr<Point> point;
    double seconds = 0;  // since the first mark
  };
  void read_first();

  std::vector<double> times_;  // since the first mark, of those that were read; then come
  std::deque<Pending> pending_;
  // The time of a mark is counted from the last one of its stream, so that two of a stream are
  // never out of order, and a single-precision difference is one of a short time.
  std::map<void*, Last> last_;
  std::vector<std::shared_ptr<Point>> unused_;
};

// Throws UnavailableError where this build lacks the device. On the CPU, where a stream runs at
// once, and on the emulator, where a mark is a piece of queued work, it is the host's clock that is
// read; on a GPU it is the GPU's, by events, good to half a microsecond.
std::unique_ptr<StreamClock> make_stream_clock(const Device& device);
// For make_stream_clock(), in builds that have the device.
std::unique_ptr<StreamClock> make_emu_stream_clock();
std::unique_ptr<StreamClock> make_cuda_stream_clock(const Device& device);

}  // namespace shale
