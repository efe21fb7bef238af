#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "shale/base/timeline.h"
#include "shale/runtime/tensor/device_backend.h"
#include "shale/runtime/tensor/stream_clock.h"

namespace shale {

// Timeline marks, converted to the host's clock. Anchors are marks for which the host waits; they
// relate the device's clock to the host's. The clock drift between two anchors is corrected.
class DeviceMarks final : public StreamMarks {
 public:
  // Must not outlive its arguments. `stream` belongs to the backend; anchors are recorded on it.
  DeviceMarks(DeviceBackend& backend, void* stream)
      : DeviceMarks(backend, stream, make_stream_clock(backend.device())) {}
  DeviceMarks(DeviceBackend& backend, void* stream, std::unique_ptr<StreamClock> clock);

  // Records a mark. Returns kNone while the stream is being captured, because a mark in a graph
  // would record no time.
  size_t mark(void* stream) override;
  // Reads the times of marks that the device has passed. Call it from time to time, so that unread
  // marks do not accumulate.
  void read();

  // Records a mark and waits for it, several times, and keeps the attempt with the shortest wait.
  // Call it before the first mark and after the last mark, when no work is queued.
  void anchor();
  // Returns the time at which the device passed a mark, in the units of Timeline::nanoseconds().
  // Call it after the second anchor. Waits until the mark has been passed.
  int64_t nanoseconds(size_t mark);
  // Maximum error of a mark's time, not including the error of the device's clock.
  int64_t error_ns() const;

 private:
  struct Anchor {
    size_t mark = kNone;
    int64_t host_ns = 0;
    int64_t error_ns = 0;
  };
  DeviceBackend& backend_;
  void* stream_;
  std::mutex mutex_;  // guards the members below
  std::unique_ptr<StreamClock> clock_;
  Anchor first_, last_;
};

}  // namespace shale
