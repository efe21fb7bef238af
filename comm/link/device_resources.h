#pragma once

#include <cstddef>
#include <utility>

#include "shale/runtime/tensor/device_backend.h"

namespace shale::comm {

// Owner of an event on a device stream.
class DeviceEvent {
 public:
  DeviceEvent() = default;
  DeviceEvent(DeviceBackend& device, void* stream)
      : device_(&device), event_(device.record_event(stream)) {}
  ~DeviceEvent() {
    if (device_ != nullptr) device_->destroy_event(event_);
  }
  DeviceEvent(DeviceEvent&& other) noexcept
      : device_(std::exchange(other.device_, nullptr)), event_(other.event_) {}
  DeviceEvent& operator=(DeviceEvent&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(event_, other.event_);
    return *this;
  }

  // Makes work queued on `stream` from now on wait for the event. Does nothing without an event.
  void hold(void* stream) const {
    if (device_ != nullptr) device_->wait_event(stream, event_);
  }
  bool done() const { return device_ == nullptr || device_->event_done(event_); }
  // Blocks until the device has reached the event.
  void wait() const {
    if (device_ != nullptr) device_->synchronize_event(event_);
  }

 private:
  DeviceBackend* device_ = nullptr;
  void* event_ = nullptr;
};

// Owner of a high-priority device stream, for work that other ranks wait for.
class DeviceStream {
 public:
  explicit DeviceStream(DeviceBackend& device)
      : device_(device), stream_(device.create_urgent_stream()) {}
  ~DeviceStream() { device_.destroy_stream(stream_); }
  DeviceStream(const DeviceStream&) = delete;
  DeviceStream& operator=(const DeviceStream&) = delete;

  void* get() const { return stream_; }

 private:
  DeviceBackend& device_;
  void* stream_;
};

// Host memory from a provider, pinned for device copies.
class PinnedBuffer {
 public:
  PinnedBuffer(MemoryProvider& provider, DeviceBackend& device, size_t bytes)
      : provider_(provider), device_(device), bytes_(bytes), data_(provider.allocate(bytes)) {
    try {
      device_.pin(data_, bytes_);
    } catch (...) {
      provider_.free(data_, bytes_);
      throw;
    }
  }
  ~PinnedBuffer() {
    device_.unpin(data_);
    provider_.free(data_, bytes_);
  }
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;

  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  MemoryProvider& provider_;
  DeviceBackend& device_;
  size_t bytes_;
  void* data_;
};

}  // namespace shale::comm
