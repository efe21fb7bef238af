#pragma once

#include <map>
#include <memory>
#include <string>

#include "shale/comm/host_group.h"
#include "shale/comm/nccl/nccl_comm_internal.h"
#include "shale/comm/nccl/nccl_watchdog_internal.h"
#include "shale/comm/world_context.h"

namespace shale::comm {

// Why ranks cannot use NCCL for `device`, for people; empty: they can. Collective over `host`.
std::string nccl_obstacle(HostGroup& host, const Device& device);

// The backend "nccl": tensors of GPUs, one rank per GPU. Collectives run on a stream of their own,
// which the caller's stream waits for; the host waits for nothing. A group and those of its lane
// that are split from it share that stream, so that their kernels never wait for each other in
// different orders; another lane has a stream, and few multiprocessors, of its own: kernels of two
// lanes are resident together.
class NcclGroup final : public ProcessGroup {
 public:
  // Collective. `device` outlives the group.
  NcclGroup(std::shared_ptr<WorldContext> context, std::unique_ptr<HostGroup> host,
            DeviceBackend& device);
  // Collective over `parent`: a part of it, over `host`, the same part of parent's.
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
  // Memory from ncclMemAlloc, registered with this group's communicator. Goes before the group.
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
  int max_ctas() const;  // that its kernels are bounded to; 0: NCCL decides
  int ctas() const;      // that they have
  void start();
  NcclParent& parent();

  std::shared_ptr<WorldContext> context_;
  std::unique_ptr<HostGroup> host_;
  DeviceBackend& device_;
  std::shared_ptr<DeviceStream> stream_;
  std::unique_ptr<NcclParent> parent_;  // of a split group: null until it is split itself
  std::unique_ptr<NcclComm> comm_;
  std::shared_ptr<NcclWatchdog> watchdog_;
  std::shared_ptr<ExposedTime> exposed_;
  RegisteredMemory memory_{*this};
  uint64_t sequence_ = 0;
  int32_t first_rank_ = 0;  // of the group, in the World
};

}  // namespace shale::comm
