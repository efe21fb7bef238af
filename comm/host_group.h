#pragma once

#include "shale/comm/link/mailbox.h"
#include "shale/comm/process_group.h"

namespace shale::comm {

class GroupProgress;

// A group for views in host memory. Groups for devices use one.
class HostGroup : public ProcessGroup {
 public:
  // Runs a call immediately, without queueing or counting it. Only jobs that the CommQueue runs may
  // call it. blocking: nothing else computes on this core during the call.
  virtual void execute(const CollectiveCall& call, bool blocking) = 0;
  // Makes counters of the ranks' progress, for device groups; null for one rank. Collective.
  virtual std::unique_ptr<GroupProgress> make_progress() = 0;
  virtual std::unique_ptr<HostGroup> split_host(int color, int key,
                                                const GroupOptions& options) = 0;
  // Opens this rank's ends of links for device groups. Specs must be checked already. Collective.
  virtual std::vector<LinkEnd> open_mailboxes(std::span<const LinkSpec> specs) = 0;

 protected:
  using ProcessGroup::ProcessGroup;

  std::unique_ptr<ProcessGroup> make_split(int color, int key,
                                           const GroupOptions& options) override {
    return split_host(color, key, options);
  }
};

}  // namespace shale::comm
