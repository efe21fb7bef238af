#pragma once

#include <memory>

#include "shale/comm/host_group.h"
#include "shale/comm/world_context.h"
#include "shale/runtime/tensor/device_backend.h"

namespace shale::comm {

// Backend "staged": sends device tensors through pinned host memory and a host group. Any number of
// ranks can share one GPU, and machines without NCCL can train.
//
// A collective uses a ring of three staging buffers, chunk by chunk. While the ranks combine one
// chunk, the device copies the next one to the host and the previous one back, so that both
// directions of its link are busy. Peers can map the staging buffers, so the ranks combine directly
// in them. Sums have the same bits as in the host group.
//
// A group of one rank needs no staging buffers: collectives copy on the caller's stream.
class StagedGroup final : public ProcessGroup {
 public:
  // `device` outlives the group.
  StagedGroup(std::shared_ptr<WorldContext> context, std::unique_ptr<HostGroup> host,
              DeviceBackend& device);
  ~StagedGroup() override;

  std::string_view backend() const override { return size() == 1 ? "self" : "staged"; }
  ProcessGroup& host() override { return *host_; }
  MemoryProvider& memory() override;

 protected:
  Work submit(const CollectiveCall& call, bool async) override;
  std::unique_ptr<ProcessGroup> make_split(int color, int key,
                                           const GroupOptions& options) override;
  std::vector<std::unique_ptr<PipeLink>> open_links(std::span<const LinkSpec> specs) override;
  bool captures(void* stream) const override { return device_.captures(stream); }

 private:
  class Staging;

  std::shared_ptr<WorldContext> context_;
  std::unique_ptr<HostGroup> host_;
  DeviceBackend& device_;
  std::unique_ptr<Staging> staging_;  // null with one rank
};

}  // namespace shale::comm
