#pragma once

#include <memory>
#include <vector>

#include "shale/comm/host_group.h"
#include "shale/comm/link/device_resources.h"
#include "shale/comm/link/pipe_link.h"

namespace shale::comm {

// A link for tensors of a device, through pinned memory and a link on the host. The host waits for
// the copy from the device when it sends, and for the message when it waits for what it receives;
// for the copy to the device the caller's stream waits.
class StagedLink final : public PipeLink {
 public:
  // host: the link of the same ranks in host memory, of the group `memory`. `device` outlives this.
  StagedLink(std::unique_ptr<PipeLink> host, HostGroup& memory, DeviceBackend& device);

 protected:
  Work pass(const View& x, const Message& message, void* stream) override;

 private:
  class Arrival;
  // A place for one message in pinned memory.
  struct Slot {
    Slot(HostGroup& group, DeviceBackend& device, int64_t bytes)
        : buffer(group.memory(), device, static_cast<size_t>(bytes)) {}
    bool free() const { return delivered && passed.done() && copied.done(); }
    PinnedBuffer buffer;
    Work passed;            // on the host
    bool delivered = true;  // what has arrived has been given to the device,
    DeviceEvent copied;     // which has copied it
  };
  struct Staging {
    Staging(HostGroup& host, DeviceBackend& backend, int64_t capacity_bytes)
        : group(host), device(backend), slot_bytes(capacity_bytes), stream(backend) {}
    ~Staging();
    Slot& free_slot();  // one more if none is
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
