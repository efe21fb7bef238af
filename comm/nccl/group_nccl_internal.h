#pragma once

#include <map>
#include <memory>
#include <string>
#include <tuple>

#include "shale/comm/host_group.h"
#include "shale/comm/nccl/nccl_comm_internal.h"
#include "shale/comm/nccl/nccl_watchdog_internal.h"
#include "shale/comm/world_context.h"

namespace shale::comm {

// Returns the reason, for messages, why ranks cannot use NCCL for `device`, a GPU or, for tests, an
// emulated one; empty: they can. Collective over `host`.
std::string nccl_obstacle(HostGroup& host, const Device& device);

// Backend "nccl": GPU tensors, one rank per GPU. Collectives run on a separate stream, for which
// the caller's stream waits; the host waits for nothing. A group and its splits in the same lane
// share that stream, so that their kernels never wait for each other in different orders. Another
// lane has its own stream and a limited number of thread blocks, so that kernels of both lanes are
// resident together.
class NcclGroup final : public ProcessGroup {
 public:
  // Collective. `device` outlives the group.
  NcclGroup(std::shared_ptr<WorldContext> context, std::unique_ptr<HostGroup> host,
            DeviceBackend& device);
  // Split of `parent`; host: the same split of parent's host group. Collective over `parent`.
  NcclGroup(NcclGroup& parent, std::unique_ptr<HostGroup> host, int color, int key);
  ~NcclGroup() override;

  std::string_view backend() const override { return "nccl"; }
  ProcessGroup& host() override;
  MemoryProvider& memory() override { return memory_; }

 protected:
  Work submit(const CollectiveCall& call, bool async) override;
  std::unique_ptr<ProcessGroup> make_split(int color, int key,
                                           const GroupOptions& options) override;
  std::vector<std::unique_ptr<PipeLink>> open_links(std::span<const LinkSpec> specs) override;
  bool captures(void* stream) const override { return device_.captures(stream); }
  void watch_replay(const std::vector<CollectiveCall>& calls, void* stream) override;

 private:
  class NcclWork;
  class ExposedTime;
  // Memory from ncclMemAlloc, registered with the communicator of this group, which outlives it.
  class RegisteredMemory final : public MemoryProvider {
   public:
    explicit RegisteredMemory(NcclGroup& group) : group_(group) {}
    void* allocate(size_t bytes) override;
    void free(void* memory, size_t bytes) noexcept override;

   private:
    NcclGroup& group_;
    std::map<void*, void*> handles_;
  };

  NcclOptions nccl_options() const;
  void start();
  NcclParent& parent();

  std::shared_ptr<WorldContext> context_;
  std::unique_ptr<HostGroup> host_;
  DeviceBackend& device_;
  std::shared_ptr<DeviceStream> stream_;
  std::unique_ptr<NcclParent> parent_;  // in a split group, null until it is split itself
  std::unique_ptr<NcclComm> comm_;
  std::shared_ptr<NcclWatchdog> watchdog_;
  std::shared_ptr<ExposedTime> exposed_;
  RegisteredMemory memory_{*this};
  // Links with the same other rank, direction and end (whether this rank sends) share a stream
  // while they live.
  using LinkKey = std::tuple<int, Direction, bool>;
  std::map<LinkKey, std::weak_ptr<DeviceStream>> link_streams_;
  ReservedSms::Hold planned_;
  uint64_t sequence_ = 0;
  int32_t first_rank_ = 0;  // World rank of the group's first rank
};

}  // namespace shale::comm
