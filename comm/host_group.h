#pragma once

#include "shale/comm/link/mailbox.h"
#include "shale/comm/process_group.h"

namespace shale::comm {

class GroupProgress;

// A group for views in host memory, over which groups for devices are built.
class HostGroup : public ProcessGroup {
 public:
  // Runs a call at once, without queueing and without accounts: for jobs of the queue, whose turn
  // it is. blocking: nobody computes on this core meanwhile.
  virtual void execute(const CollectiveCall& call, bool blocking) = 0;
  // The progress of its ranks, for groups built over it; null with one rank. Collective.
  virtual std::unique_ptr<GroupProgress> make_progress() = 0;
  virtual std::unique_ptr<HostGroup> split_host(int color, int key,
                                                const GroupOptions& options) = 0;
  // The ends of links, of specs that have been checked: for links of devices too. Collective.
  virtual std::vector<LinkEnd> open_mailboxes(std::span<const LinkSpec> specs) = 0;

 protected:
  using ProcessGroup::ProcessGroup;

  std::unique_ptr<ProcessGroup> make_split(int color, int key,
                                           const GroupOptions& options) override {
    return split_host(color, key, options);
  }
};

}  // namespace shale::comm
