#pragma once

#include <memory>
#include <vector>

#include "shale/comm/host_group.h"
#include "shale/comm/link/device_resources.h"
#include "shale/comm/link/pipe_link.h"

namespace shale::comm {

// Link for device tensors, through pinned memory and a host link. send() waits on the host for the
// copy from the device. The Work of receive() waits on the host for the message; then the caller's
// stream waits for the copy to the device.
class StagedLink final : public PipeLink {
 public:
  // host: host link of the two ranks. memory: the group that made `host`. `device` must outlive
  // this link.
  StagedLink(std::unique_ptr<PipeLink> host, HostGroup& memory, DeviceBackend& device);

 protected:
  Work pass(const View& x, const Message& message, void* stream) override;

 private:
  class Arrival;
  // Pinned memory for one message.
  struct Slot {
    Slot(HostGroup& group, DeviceBackend& device, int64_t bytes)
        : buffer(group.memory(), device, static_cast<size_t>(bytes)) {}
    bool free() const { return delivered && passed.done() && copied.done(); }
    PinnedBuffer buffer;
    Work passed;            // transfer through the host link
    bool delivered = true;  // false: a received message has yet to be copied to the device
    DeviceEvent copied;     // event at the end of the copy to the device
  };
  struct Staging {
    Staging(HostGroup& host, DeviceBackend& backend, int64_t capacity_bytes)
        : group(host), device(backend), slot_bytes(capacity_bytes), stream(backend) {}
    ~Staging();
    Slot& free_slot();  // adds one if none is free
    HostGroup& group;
    DeviceBackend& device;
    int64_t slot_bytes;
    DeviceStream stream;
    std::vector<std::unique_ptr<Slot>> slots;
  };

  std::unique_ptr<PipeLink> host_;
  std::shared_ptr<Staging> staging_;
};

}  // namespace shale::comm
