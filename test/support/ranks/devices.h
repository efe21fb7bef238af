#pragma once

#include <map>
#include <memory>

#include "shale/kernels/simt/engine/options.h"
#include "shale/kernels/simt/engine/stream.h"
#include "shale/runtime/tensor/device_backend.h"

namespace shale::test {

// An emulated GPU; derived classes change one thing of it.
class ChangedDevice : public DeviceBackend {
 public:
  explicit ChangedDevice(const emulator::Options& options)
      : device_(make_emu_backend({.type = DeviceType::kEmu, .arch = 80}, options)) {}

  Device device() const override { return device_->device(); }
  MemoryProvider& memory() override { return device_->memory(); }
  MemoryProvider& host_memory() override { return device_->host_memory(); }
  void pin(void* memory, size_t bytes) override { device_->pin(memory, bytes); }
  void unpin(void* memory) noexcept override { device_->unpin(memory); }
  void* create_stream() override { return device_->create_stream(); }
  void destroy_stream(void* stream) noexcept override { device_->destroy_stream(stream); }
  void synchronize(void* stream) override { device_->synchronize(stream); }
  void* record_event(void* stream) override { return device_->record_event(stream); }
  void wait_event(void* stream, void* event) override { device_->wait_event(stream, event); }
  bool event_done(void* event) override { return device_->event_done(event); }
  void synchronize_event(void* event) override { device_->synchronize_event(event); }
  void destroy_event(void* event) noexcept override { device_->destroy_event(event); }
  void copy(void* to, const void* from, size_t bytes, void* stream) override {
    device_->copy(to, from, bytes, stream);
  }

 private:
  std::unique_ptr<DeviceBackend> device_;
};

// Ignores requests that a stream waits for an event of another stream.
class ForgetfulDevice final : public ChangedDevice {
 public:
  using ChangedDevice::ChangedDevice;
  void wait_event(void*, void*) override {}
};

// Counts the copies on each stream.
class CountingDevice final : public ChangedDevice {
 public:
  using ChangedDevice::ChangedDevice;
  struct Copies {
    int queued = 0, done = 0;
  };
  void copy(void* to, const void* from, size_t bytes, void* stream) override {
    ChangedDevice::copy(to, from, bytes, stream);
    Copies& copies = copies_[stream];
    ++copies.queued;
    static_cast<emulator::Stream*>(stream)->enqueue([&copies] { ++copies.done; });
  }
  // Sums the copies on all streams but this one.
  Copies copies_beside(void* stream) const {
    Copies sum;
    for (const auto& [other, copies] : copies_) {
      if (other == stream) continue;
      sum.queued += copies.queued;
      sum.done += copies.done;
    }
    return sum;
  }

 private:
  std::map<void*, Copies> copies_;
};

}  // namespace shale::test
