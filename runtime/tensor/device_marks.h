#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "shale/base/timeline.h"
#include "shale/runtime/tensor/device_backend.h"
#include "shale/runtime/tensor/stream_clock.h"

namespace shale {

// Marks for a timeline whose times are those of the host's clock: where a moment of the device's
// clock lies on the host's is found by anchors, marks that the host waits for. What the clocks
// drift between two anchors is taken out.
class DeviceMarks final : public StreamMarks {
 public:
  // All are outlived; `stream` is one of the backend's, which anchors are set on.
  DeviceMarks(DeviceBackend& backend, void* stream)
      : DeviceMarks(backend, stream, make_stream_clock(backend.device())) {}
  DeviceMarks(DeviceBackend& backend, void* stream, std::unique_ptr<StreamClock> clock);

  // kNone while the stream is captured: a mark would be a part of the graph, and kept no time.
  size_t mark(void* stream) override;
  // Reads what the device has passed, so that it need not all be kept until the end.
  void read();

  // Waits for the stream, several times, and takes the try that was the shortest. To be called
  // before the first mark and after the last, when nothing is queued.
  void anchor();
  // When the device came to a mark, as Timeline::nanoseconds() counts; after the second anchor.
  // Waits for what has not been passed.
  int64_t nanoseconds(size_t mark);
  // A mark's time is wrong by so much at most, and by what the device's clock is.
  int64_t error_ns() const;

 private:
  struct Anchor {
    size_t mark = kNone;
    int64_t host_ns = 0;
    int64_t error_ns = 0;
  };
  DeviceBackend& backend_;
  void* stream_;
  std::mutex mutex_;  // of what follows
  std::unique_ptr<StreamClock> clock_;
  Anchor first_, last_;
};

}  // namespace shale
