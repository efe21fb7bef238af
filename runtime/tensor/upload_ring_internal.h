#pragma once

#include <cstddef>
#include <deque>
#include <mutex>

#include "shale/runtime/tensor/device_backend.h"

namespace shale {

// Pinned memory through which small uploads go, so that neither the host nor the stream waits for
// a driver's staging. An upload's bytes are used again when the device has read them. Safe for
// several threads.
class UploadRing {
 public:
  // Takes `bytes` of the backend's host memory at the first upload, and must not outlive it.
  UploadRing(DeviceBackend& backend, size_t bytes) : backend_(backend), bytes_(bytes) {}
  ~UploadRing();
  UploadRing(const UploadRing&) = delete;
  UploadRing& operator=(const UploadRing&) = delete;

  // Larger ones would wait for each other.
  bool takes(size_t bytes) const { return bytes <= bytes_ / 4; }

  // Copies to device memory, in the order of `stream`; `from` has been read when this returns.
  // Waits for the device only where all bytes are still to be read, or of many uploads the first.
  void upload(void* to, const void* from, size_t bytes, void* stream);

 private:
  struct Upload {
    size_t begin, end;
    void* read;  // an event
  };
  // Where so many bytes begin that no upload under way has.
  size_t make_room(size_t bytes);
  void retire_first();

  DeviceBackend& backend_;
  const size_t bytes_;
  std::mutex mutex_;
  std::byte* memory_ = nullptr;
  std::deque<Upload> under_way_;  // the oldest first
  size_t next_ = 0;
};

}  // namespace shale
