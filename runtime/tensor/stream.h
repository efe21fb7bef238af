#pragma once

#include <memory>

#include "shale/runtime/tensor/device_backend.h"

namespace shale {

// A point in the work of a stream; copies of an Event are the same point. Must not outlive its
// backend.
class Event {
 public:
  Event() = default;  // an event that is done already
  // An event after all work that is now queued on `stream`.
  Event(DeviceBackend& backend, void* stream)
      : handle_(std::make_shared<Handle>(backend, backend.record_event(stream))) {}

  bool done() const { return handle_ == nullptr || handle_->backend.event_done(handle_->event); }
  // Blocks the host until the event is done.
  void synchronize() const {
    if (handle_ != nullptr) handle_->backend.synchronize_event(handle_->event);
  }
  // Makes work queued on `stream` from now on wait for the event.
  void hold_back(void* stream) const {
    if (handle_ != nullptr) handle_->backend.wait_event(stream, handle_->event);
  }

 private:
  struct Handle {
    Handle(DeviceBackend& owner, void* recorded) : backend(owner), event(recorded) {}
    ~Handle() { backend.destroy_event(event); }
    Handle(const Handle&) = delete;
    Handle& operator=(const Handle&) = delete;
    DeviceBackend& backend;
    void* event;
  };
  std::shared_ptr<const Handle> handle_;
};

// A stream in addition to a context's compute stream. Must not outlive its backend.
class Stream {
 public:
  explicit Stream(DeviceBackend& backend) : backend_(backend), stream_(backend.create_stream()) {}
  ~Stream() { backend_.destroy_stream(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  void* handle() const { return stream_; }
  Event mark() const { return {backend_, stream_}; }
  void synchronize() const { backend_.synchronize(stream_); }

 private:
  DeviceBackend& backend_;
  void* stream_;
};

}  // namespace shale
