#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "shale/base/device.h"

namespace shale {

// Records when a device's streams reach certain points, by the device's own clock. Setting a mark
// never waits. Marks are read after the device has passed them, and their device objects are then
// reused. Use from one thread at a time.
class StreamClock {
 public:
  using HostClock = std::chrono::steady_clock;

  virtual ~StreamClock() = default;
  StreamClock(const StreamClock&) = delete;
  StreamClock& operator=(const StreamClock&) = delete;

  // The stream passes the mark when all its work queued so far is done. Returns the mark's number.
  size_t mark(void* stream);
  // Reads the passed marks, up to the first that is not passed; marks of several streams may be
  // passed out of order. Returns the number of the first unread mark.
  size_t read();
  // Waits until all marks have been passed, then reads them.
  void read_all();
  // Seconds from mark `from` to mark `to`; negative if `to` was passed first. Both marks must have
  // been passed.
  double seconds(size_t from, size_t to);
  void forget_before(size_t mark);  // frees the times of earlier marks, which must have been read
  void forget_marks();  // numbering restarts at 0; waits for marks that have not been passed

 protected:
  StreamClock() = default;

  // A point of a stream's work that records its time.
  struct Point {
    virtual ~Point() = default;
  };
  virtual std::unique_ptr<Point> make_point() = 0;
  virtual void record(Point& point, void* stream) = 0;  // overwrites an earlier record of the point
  virtual bool passed(const Point& point) = 0;
  virtual void wait(const Point& point, void* stream) = 0;
  virtual double seconds_between(const Point& from, const Point& to) = 0;  // both points are passed

 private:
  struct Pending {
    std::shared_ptr<Point> point;
    void* stream;
  };
  struct Last {
    std::shared_ptr<Point> point;
    double seconds = 0;  // time since the first mark
  };
  void read_first();

  // Times of the marks that were read, from number forgotten_ on, in seconds since the first mark;
  // pending_ has the later marks.
  std::deque<double> times_;
  size_t forgotten_ = 0;
  std::deque<Pending> pending_;
  // The time of a mark is measured from the previous mark of its stream. Marks of one stream are
  // thus never out of order, and single-precision differences cover only short times.
  std::map<void*, Last> last_;
  std::vector<std::shared_ptr<Point>> unused_;
};

// Throws UnavailableError if this build lacks the device. On the CPU, whose streams run
// synchronously, and on the emulator, where a mark is queued work, the clock is the host's. On a
// GPU it uses events of the GPU, accurate to half a microsecond.
std::unique_ptr<StreamClock> make_stream_clock(const Device& device);
// Used by make_stream_clock() in builds that have the device.
std::unique_ptr<StreamClock> make_emu_stream_clock();
std::unique_ptr<StreamClock> make_cuda_stream_clock(const Device& device);

}  // namespace shale
