#pragma once

#include <memory>

#include "shale/comm/link/device_resources.h"
#include "shale/comm/link/mailbox.h"
#include "shale/comm/nccl/nccl_comm_internal.h"
#include "shale/comm/nccl/nccl_watchdog_internal.h"
#include "shale/comm/world_context.h"

namespace shale::comm {

// Link for GPU tensors: ncclSend and ncclRecv on a separate communicator of the two ranks. The
// links between two ranks in one direction share a stream, because a GPU runs few streams at a
// time. Both ends pass messages in the same order, so a link waits only for its two ends. Message
// headers are sent between the hosts, and the watchdog compares them: a wrong header aborts the
// communicator.
//
// A send needs no slots: NCCL uses its own buffers and the memory of x instead.
class NcclLink final : public PipeLink {
 public:
  // Maximum number of messages by which a sender may be ahead of the receiver's watchdog.
  static constexpr int kAhead = 1024;
  // Maximum number of thread blocks of a kernel, and number of SMs to reserve for it.
  static constexpr int kCtas = 2;

  // Collective over the two ranks, because their first message connects them. comm: communicator of
  // the two, with the sender first. end: mailbox for headers without values, with kAhead slots.
  // `spec` describes the link. `device` must outlive it.
  NcclLink(std::shared_ptr<WorldContext> context, LinkEnd end, const LinkSpec& spec,
           std::unique_ptr<NcclComm> comm, DeviceBackend& device,
           std::shared_ptr<DeviceStream> stream);
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
  std::shared_ptr<DeviceStream> stream_;
  ReservedSms::Hold planned_;
  std::shared_ptr<Labels> labels_;
  std::unique_ptr<NcclComm> comm_;
  std::shared_ptr<NcclWatchdog> watchdog_;
};

}  // namespace shale::comm
