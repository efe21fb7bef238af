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

// Returns why the ranks cannot use NCCL for `device`, as text for messages. Empty if they can.
// `device` is a GPU or, for tests, an emulated one. Collective over `host`.
std::string nccl_obstacle(HostGroup& host, const Device& device);

// Backend "nccl": tensors on GPUs, one rank per GPU. Collectives run on a separate stream, and the
// caller's stream waits for them; the host does not wait. A group and its splits in the same lane
// share that stream. Their kernels therefore run in the same order on all ranks and never wait for
// each other. Another lane has its own stream. Kernels have a limited number of thread blocks, so
// that those of both lanes are resident together.
class NcclGroup final : public ProcessGroup {
 public:
  // Collective. `device` outlives the group.
  NcclGroup(std::shared_ptr<WorldContext> context, std::unique_ptr<HostGroup> host,
            DeviceBackend& device);
  // Makes a split of `parent`. host: the same split of its host group. Collective over `parent`.
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
  // Memory from ncclMemAlloc, registered with this group's communicator. The group must outlive it.
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
  std::unique_ptr<NcclParent> parent_;  // in a split group: null until that group is split
  std::unique_ptr<NcclComm> comm_;
  std::shared_ptr<NcclWatchdog> watchdog_;
  std::shared_ptr<ExposedTime> exposed_;
  RegisteredMemory memory_{*this};
  // Peer, direction, whether this rank sends. Links with the same key share a stream while they
  // live.
  using LinkKey = std::tuple<int, Direction, bool>;
  std::map<LinkKey, std::weak_ptr<DeviceStream>> link_streams_;
  ReservedSms::Hold planned_;
  uint64_t sequence_ = 0;
  int32_t first_rank_ = 0;  // World rank of the group's first rank
};

}  // namespace shale::comm
