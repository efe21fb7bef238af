#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "shale/base/timeline.h"
#include "shale/runtime/tensor/device_backend.h"
#include "shale/runtime/tensor/stream_clock.h"

namespace shale {

// Timeline marks converted to the host's clock. Anchors, marks that the host waits for, relate the
// device's clock to the host's. The clock drift between two anchors is corrected.
class DeviceMarks final : public StreamMarks {
 public:
  // Must not outlive its arguments. `stream` belongs to the backend; anchors are recorded on it.
  DeviceMarks(DeviceBackend& backend, void* stream)
      : DeviceMarks(backend, stream, make_stream_clock(backend.device())) {}
  DeviceMarks(DeviceBackend& backend, void* stream, std::unique_ptr<StreamClock> clock);

  // Returns kNone while the stream is being captured: a mark in a graph would record no time.
  size_t mark(void* stream) override;
  // Reads the marks that the device has passed, so that they need not all be kept until the end.
  void read();

  // Records a mark, waits for it, and repeats this to keep the try with the shortest wait. Call it
  // before the first mark and after the last mark, when nothing is queued.
  void anchor();
  // Time at which the device passed a mark, in the units of Timeline::nanoseconds(). Call it after
  // the second anchor. Waits if the mark has not been passed.
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
