#pragma once

#include <memory>
#include <string>

#include "shale/comm/host_group.h"
#include "shale/comm/mpi/inter_node_internal.h"
#include "shale/comm/mpi_internal.h"
#include "shale/comm/node/node_memory.h"
#include "shale/comm/world_context.h"

namespace shale::comm {

// Backend "mpi" for host memory: shared memory inside a node, MPI between nodes and for setup.
class MpiGroup final : public HostGroup {
 public:
  // Collective over the ranks of `comm`.
  MpiGroup(std::shared_ptr<WorldContext> context, MpiComm comm, const GroupOptions& options);
  ~MpiGroup() override;

  std::string_view backend() const override { return "mpi"; }
  MemoryProvider& memory() override { return context_->memory; }
  void execute(const CollectiveCall& call, bool blocking) override;
  std::unique_ptr<GroupProgress> make_progress() override;
  std::unique_ptr<HostGroup> split_host(int color, int key, const GroupOptions& options) override;
  std::vector<LinkEnd> open_mailboxes(std::span<const LinkSpec> specs) override;
  void on_failure(FailureListener listener) override {
    context_->board.listen(std::move(listener));
  }

 protected:
  Work submit(const CollectiveCall& call, bool async) override;
  std::vector<std::unique_ptr<PipeLink>> open_links(std::span<const LinkSpec> specs) override;

 private:
  // State that collectives use. It outlives the group after a failure.
  struct Engine;
  CommQueue& queue() const { return context_->queue(options().lane); }
  std::unique_ptr<Mailbox> node_mailbox(const LinkOptions& options, MPI_Comm comm, int tag) const;

  std::shared_ptr<WorldContext> context_;
  MpiComm comm_;
  std::shared_ptr<Engine> engine_;
  uint64_t sequence_ = 0;
  std::string failure_;  // reason for which the group is unusable
};

}  // namespace shale::comm
