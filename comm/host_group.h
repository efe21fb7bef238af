#pragma once

#include "shale/comm/link/mailbox.h"
#include "shale/comm/process_group.h"

namespace shale::comm {

class GroupProgress;

// A group for views in host memory. Groups for devices are built over it.
class HostGroup : public ProcessGroup {
 public:
  // Runs a call immediately, without queueing or counting it; for jobs of the CommQueue whose turn
  // has come. blocking: nothing else computes on this core during the call.
  virtual void execute(const CollectiveCall& call, bool blocking) = 0;
  // Makes the progress counters of the ranks, for groups built over this one; null with one rank.
  // Collective.
  virtual std::unique_ptr<GroupProgress> make_progress() = 0;
  virtual std::unique_ptr<HostGroup> split_host(int color, int key,
                                                const GroupOptions& options) = 0;
  // Opens this rank's ends of links with checked specs; device groups use it too. Collective.
  virtual std::vector<LinkEnd> open_mailboxes(std::span<const LinkSpec> specs) = 0;

 protected:
  using ProcessGroup::ProcessGroup;

  std::unique_ptr<ProcessGroup> make_split(int color, int key,
                                           const GroupOptions& options) override {
    return split_host(color, key, options);
  }
};

}  // namespace shale::comm
