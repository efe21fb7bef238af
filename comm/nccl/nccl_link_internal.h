#pragma once

#include <memory>

#include "shale/comm/link/mailbox.h"
#include "shale/comm/nccl/nccl_comm_internal.h"
#include "shale/comm/nccl/nccl_watchdog_internal.h"
#include "shale/comm/world_context.h"

namespace shale::comm {

// A link for tensors of GPUs: ncclSend and ncclRecv on a communicator and a stream of the two
// ranks' own, so that links wait for nobody but their two ends. What the messages are travels
// beside them, between the hosts, where the watchdog compares it: a wrong one ends the
// communicator.
//
// A send waits for no room of its own: NCCL's buffers and the memory of x are that.
class NcclLink final : public PipeLink {
 public:
  // Messages by which a sender may be ahead of what the receiver's watchdog has looked at.
  static constexpr int kAhead = 1024;

  // Collective over the two ranks, as their first message connects them. comm: theirs, the sender
  // first. end: for messages of no bytes, kAhead of them; `spec`
  // is the link's. `device` outlives this.
  NcclLink(std::shared_ptr<WorldContext> context, LinkEnd end, const LinkSpec& spec,
           std::unique_ptr<NcclComm> comm, DeviceBackend& device);
  ~NcclLink() override;

 protected:
  Work pass(const View& x, const Message& message, void* stream) override;

 private:
  class Labels;
  class Passing;
  void connect();
  std::shared_ptr<const DeviceEvent> launch(const View& x, const Message& message,
                                            std::shared_ptr<const NcclWatchdog::Launch>& noted);

  std::shared_ptr<WorldContext> context_;
  DeviceBackend& device_;
  DeviceStream stream_;
  std::shared_ptr<Labels> labels_;
  std::unique_ptr<NcclComm> comm_;
  std::shared_ptr<NcclWatchdog> watchdog_;
};

}  // namespace shale::comm
