#pragma once

#include <cstddef>
#include <memory>

#include "shale/base/device.h"

namespace shale::bench {

// When the streams of a device came to certain points of their work. Setting a mark waits for
// nothing; marks are read after the step, when the device has done its work.
class StreamClock {
 public:
  virtual ~StreamClock() = default;
  StreamClock(const StreamClock&) = delete;
  StreamClock& operator=(const StreamClock&) = delete;

  // What the stream was given so far is done when it passes the mark. Returns the mark's number.
  virtual size_t mark(void* stream) = 0;
  // Seconds from one mark to a later one of the same stream. Both have been passed.
  virtual double seconds(size_t from, size_t to) const = 0;
  virtual void forget_marks() = 0;  // numbers start anew; all marks have been passed

 protected:
  StreamClock() = default;
};

// Throws UnavailableError where this build lacks the device. On the emulator a mark is a piece of
// queued work that reads the host's clock, on a GPU an event, good to half a microsecond.
std::unique_ptr<StreamClock> make_stream_clock(const Device& device);
// For make_stream_clock(); only in builds with CUDA.
std::unique_ptr<StreamClock> make_cuda_clock();

}  // namespace shale::bench
