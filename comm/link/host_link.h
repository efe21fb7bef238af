#pragma once

#include <memory>

#include "shale/comm/link/mailbox.h"
#include "shale/comm/world_context.h"

namespace shale::comm {

// Link for views in host memory, over a mailbox. A transfer that need not wait is done immediately
// on the caller's thread. Other transfers are done in wait().
class HostLink final : public PipeLink {
 public:
  // end.mailbox is not null.
  HostLink(std::shared_ptr<WorldContext> context, LinkEnd end);
  ~HostLink() override;

 protected:
  Work pass(const View& x, const Message& message, void* stream) override;

 private:
  class Transfer;
  class Queue;
  std::shared_ptr<Queue> queue_;
};

}  // namespace shale::comm
