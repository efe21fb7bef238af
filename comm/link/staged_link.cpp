#include "shale/comm/link/staged_link.h"

#include <algorithm>
#include <exception>

#include "shale/base/error.h"
#include "shale/comm/work_state.h"

namespace shale::comm {

// Receives a message to a device. The first wait() queues its copy to the device.
class StagedLink::Arrival final : public WorkState {
 public:
  Arrival(std::shared_ptr<Staging> staging, Slot& slot, Work host, const View& into, void* stream)
      : staging_(std::move(staging)),
        slot_(slot),
        host_(std::move(host)),
        into_(into),
        stream_(stream) {}

  // False before wait(), because only wait() queues the copy to the device.
  bool done() const override { return delivered_; }
  void wait() override {
    host_.wait();
    if (!delivered_) deliver();
    slot_.copied.hold(stream_);
  }
  void hold(void* stream) override { slot_.copied.hold(stream); }
  void give_up() override {
    if (host_.state() != nullptr) host_.state()->give_up();
  }

 private:
  void deliver() {
    void* const own = staging_->stream.get();
    if (into_.bytes() > 0) {
      staging_->device.copy(into_.data, slot_.buffer.data(), static_cast<size_t>(into_.bytes()),
                            own);
    }
    slot_.copied = DeviceEvent(staging_->device, own);
    slot_.delivered = delivered_ = true;
  }

  std::shared_ptr<Staging> staging_;
  Slot& slot_;
  Work host_;
  View into_;
  void* stream_;
  bool delivered_ = false;
};

StagedLink::Slot& StagedLink::Staging::free_slot() {
  for (const auto& slot : slots) {
    if (slot->free()) return *slot;
  }
  slots.push_back(std::make_unique<Slot>(group, device, std::max<int64_t>(slot_bytes, 1)));
  return *slots.back();
}

StagedLink::Staging::~Staging() {
  try {
    device.synchronize(stream.get());  // some copies may be running after a failure
  } catch (const std::exception&) {
    // A failed device runs no copies, and its error has already been reported.
  }
}

StagedLink::StagedLink(std::unique_ptr<PipeLink> host, HostGroup& memory, DeviceBackend& device)
    : PipeLink(host->options()),
      host_(std::move(host)),
      staging_(std::make_shared<Staging>(memory, device, options().spec.capacity_bytes)) {
  // This link counts the traffic. With its own meter, the host link does not count it again.
  host_->account(std::make_shared<TrafficMeter>());
}

Work StagedLink::pass(const View& x, const Message& message, void* stream) {
  DeviceBackend& device = staging_->device;
  if (device.captures(stream)) {
    throw CommError(
        cat(link_name(options()), ": links through host memory cannot be captured; use NCCL"));
  }
  Slot& slot = staging_->free_slot();
  void* const own = staging_->stream.get();
  DeviceEvent(device, stream).hold(own);
  const View staged = make_view(slot.buffer.data(), message.dtype, {message.count});
  if (options().sends) {
    if (x.bytes() > 0) {
      device.copy(slot.buffer.data(), x.data, static_cast<size_t>(x.bytes()), own);
    }
    DeviceEvent(device, own).wait();
    slot.passed = host_->send(staged, message.id);
    return slot.passed;
  }
  slot.passed = host_->receive(staged, message.id);
  slot.delivered = false;
  return Work(std::make_shared<Arrival>(staging_, slot, slot.passed, x, stream));
}

}  // namespace shale::comm
