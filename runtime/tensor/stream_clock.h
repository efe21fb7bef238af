#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "shale/base/device.h"

namespace shale {

// Records the times at which a device's streams reach certain points (marks), by the device's own
// clock. Setting a mark never waits. A mark is read after the device has passed it, and its device
// object is then reused. Use it from one thread at a time.
class StreamClock {
 public:
  using HostClock = std::chrono::steady_clock;

  virtual ~StreamClock() = default;
  StreamClock(const StreamClock&) = delete;
  StreamClock& operator=(const StreamClock&) = delete;

  // Sets a mark, which the stream passes when all its work queued so far is done. Returns the
  // number of the mark.
  size_t mark(void* stream);
  // Reads the times of passed marks, up to the first mark that was not passed. Marks of different
  // streams may be passed in another order. Returns the number of the first unread mark.
  size_t read();
  // Waits until all marks have been passed, then reads them.
  void read_all();
  // Seconds from mark `from` to mark `to`; negative if `to` was passed first. Both marks must have
  // been passed.
  double seconds(size_t from, size_t to);
  // frees the times of marks before `mark`, which must have been read
  void forget_before(size_t mark);
  void forget_marks();  // waits for marks that were not passed; numbers start at 0 again

 protected:
  StreamClock() = default;

  // A point in a stream's work whose time is recorded.
  struct Point {
    virtual ~Point() = default;
  };
  virtual std::unique_ptr<Point> make_point() = 0;
  virtual void record(Point& point, void* stream) = 0;  // overwrites an earlier record of the point
  virtual bool passed(const Point& point) = 0;
  virtual void wait(const Point& point, void* stream) = 0;
  // both points must have been passed
  virtual double seconds_between(const Point& from, const Point& to) = 0;

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

  // Times of the marks that were read, in seconds since the first mark. Element 0 is mark number
  // forgotten_. pending_ has the later marks.
  std::deque<double> times_;
  size_t forgotten_ = 0;
  std::deque<Pending> pending_;
  // Last mark of each stream. The time of a mark is measured from it. So marks of one stream are
  // never out of order, and differences, which are in single precision, are short.
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
