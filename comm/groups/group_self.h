#pragma once

#include <memory>

#include "shale/comm/host_group.h"
#include "shale/comm/world_context.h"

namespace shale::comm {

// Group of one rank. Collectives copy `in` to `out` or do nothing, and are done on return.
class SelfGroup final : public HostGroup {
 public:
  SelfGroup(std::shared_ptr<WorldContext> context, const GroupOptions& options)
      : HostGroup(0, 1, options), context_(std::move(context)) {}

  std::string_view backend() const override { return "self"; }
  MemoryProvider& memory() override { return context_->memory; }
  void execute(const CollectiveCall& call, bool blocking) override;
  std::unique_ptr<GroupProgress> make_progress() override;
  std::unique_ptr<HostGroup> split_host(int color, int key, const GroupOptions& options) override;
  std::vector<LinkEnd> open_mailboxes(std::span<const LinkSpec>) override { return {}; }

 protected:
  Work submit(const CollectiveCall& call, bool async) override;

 private:
  std::shared_ptr<WorldContext> context_;
};

}  // namespace shale::comm
