#pragma once

#include <cstddef>
#include <deque>
#include <mutex>

#include "shale/runtime/tensor/device_backend.h"

namespace shale {

// Ring of pinned memory for small uploads, so that neither the host nor the stream waits for the
// driver's staging buffers. Space is reused after the device has read it. Thread-safe.
class UploadRing {
 public:
  // Allocates `bytes` of the backend's host memory at the first upload; must not outlive the
  // backend.
  UploadRing(DeviceBackend& backend, size_t bytes) : backend_(backend), bytes_(bytes) {}
  ~UploadRing();
  UploadRing(const UploadRing&) = delete;
  UploadRing& operator=(const UploadRing&) = delete;

  // True if an upload of this size is small enough. Large uploads would wait for each other.
  bool takes(size_t bytes) const { return bytes <= bytes_ / 4; }

  // Copies to device memory in the order of `stream`. When this returns, `from` has been read. If
  // the ring is full or too many uploads are pending, waits for the oldest one.
  void upload(void* to, const void* from, size_t bytes, void* stream);

 private:
  struct Upload {
    size_t begin, end;
    void* read;  // event that says that the device has read the data
  };
  // Makes room for `bytes` bytes that no pending upload uses. Returns their offset in the ring.
  size_t make_room(size_t bytes);
  void retire_first();

  DeviceBackend& backend_;
  const size_t bytes_;
  std::mutex mutex_;
  std::byte* memory_ = nullptr;
  std::deque<Upload> under_way_;  // pending uploads, oldest first
  size_t next_ = 0;
};

}  // namespace shale
