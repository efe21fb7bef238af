#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "shale/comm/process_group.h"
#include "shale/runtime/offload/host_tier.h"
#include "shale/runtime/optim/shard.h"
#include "shale/runtime/tensor/context.h"
#include "shale/runtime/tensor/stream.h"

namespace shale::kernels {
enum class BlockCode : uint8_t;  // see kernels/block_codes.h
}

namespace shale::comm {

class HostedModels;

// Pipeline stages; each rank has some of the model's pieces.
struct PipelineStages {
  ProcessGroup* group = nullptr;  // ranks of this rank's pipeline, in stage order
  // Ranks that together hold the whole gradient: `group`, or `group` and ShardGroups::shard.
  ProcessGroup* whole = nullptr;
  ProcessGroup* tie = nullptr;  // two stages that share a tied table; null: not this stage
  // Ranks of `group` that have a parameter of the whole model, in order. Two stages may have copies
  // of a tied table: both update it, and the values of the first stage are saved.
  std::map<const Parameter*, std::vector<int>> holders = {};

  int first_holder(const Parameter& parameter) const { return holders.at(&parameter).front(); }
  bool is_first_holder(const Parameter& parameter) const {
    return first_holder(parameter) == group->rank();
  }
};

// Process groups over which a model is trained. All groups outlive their users.
struct ShardGroups {
  // Ranks that shard the training state, one shard each, in rank order.
  ProcessGroup* shard = nullptr;
  // Number of mesh ranks that share each sequence: on an inner axis of `shard` or hosted here.
  int context = 1;
  // Hybrid sharding: the ranks with the same shard in other shard groups; null: none. Gradients are
  // added over `shard` first, then over `replicate`. bf16 sums are rounded twice, so only f32
  // gradients have the same bits as one group of all ranks.
  ProcessGroup* replicate = nullptr;
  // Tensor-parallel ranks (comm/parallel/tensor): gradients of parameters that they all hold,
  // and gradient norms, are added over this group. null: no tensor parallelism.
  ProcessGroup* tensor = nullptr;
  // The ranks of both `shard` and `tensor`, which together have the whole matrices for optimizers
  // that need them. null: such optimizers are errors in stages 1 to 3 with tensor parallelism.
  ProcessGroup* shard_and_tensor = nullptr;
  // Expert parallelism (comm/parallel/expert), over the ranks of `shard`, or of `shard` and
  // `tensor`. experts: ranks that together have all experts. expert_shard: ranks with the same
  // experts, which replaces `shard` for sharding experts and adding their gradients. null: every
  // rank has all experts, or its tensor shard of each.
  ProcessGroup* experts = nullptr;
  ProcessGroup* expert_shard = nullptr;
  // Groups in Lane::kModel for collectives inside layers: graphs capture these collectives.
  std::vector<ProcessGroup*> layers = {};
  // For ReshardAfterForward::kSmallGroup: ranks [k n, (k + 1) n) of `shard`, inside a node.
  ProcessGroup* reshard = nullptr;
  // Null: there is no pipeline.
  const PipelineStages* stages = nullptr;
  // Models of this process's mesh ranks. null: the process has one mesh rank.
  const HostedModels* hosted = nullptr;
};

// Which samples determine a replica's gradient in hybrid sharding.
enum class ReplicaGradients : uint8_t {
  kSum,    // samples of all replicas: adds over ShardGroups::replicate
  kShare,  // the replica's own samples: one summand of the sum kSum
  kOwn,    // the replica's own samples, of which the loss is the mean: for local steps
};

// Treatment of a unit's parameters between forward and backward in stage 3.
enum class ReshardAfterForward {
  kAuto,  // kNo for a unit that encloses other units, as it is needed before and after the enclosed
          // units; else kYes
  kYes,   // frees the parameters; backward gathers them again
  kNo,    // keeps the parameters: more memory, a third less communication
  kSmallGroup,  // keeps a shard of ShardGroups::reshard: backward gathers within a node
};

// Parts of a unit that are kept in host memory instead of device memory (runtime/offload). An
// offload::OptimizerOffload steps their masters there.
struct UnitOffload {
  offload::HostTier* tier = nullptr;  // has the masters and optimizer states; null: no offload
  // Stages 2 and 3: also offloads this rank's gradient shard; reductions send sums to the host.
  bool gradients = false;
  // Stage 3: also offloads this rank's parameter shard; each gather fetches it.
  bool parameters = false;
  friend auto operator<=>(const UnitOffload&, const UnitOffload&) = default;
};

// Storage of a unit's parameters.
struct UnitOptions {
  DType compute = DType::kF32;  // parameter dtype in ops; below f32 there are f32 masters
  DType reduce = DType::kF32;   // gradient dtype, for storage and reduction
  ReshardAfterForward reshard_after_forward = ReshardAfterForward::kAuto;
  // Stage 3: parameters with fewer elements stay whole on every rank, as gathering them costs more
  // time than it saves memory.
  int64_t persist_below = 0;
  UnitOffload offload = {};
};

// Sharding of the training state (arXiv:1910.02054, section 5): optimizer states from stage 1,
// gradients from stage 2, parameters in stage 3.
struct ShardingOptions {
  int stage = 0;
  // Overlap collectives with computation; false: wait for each of them.
  bool overlap = true;
  // Add micro-batches in an order that does not depend on the number of ranks: micro-batch j of
  // rank r is leaf j * ranks + r of one binary tree.
  bool reproducible = false;
  // Stages 2 and 3: quantization codes (kernels/block_codes.h) for gathering matrix parameters and
  // for sending their gradients to the rank that adds them (ZeRO++, arXiv:2306.10209); none:
  // unquantized. Not used for buffers that one rank owns, nor for gathers in a smaller group.
  std::optional<kernels::BlockCode> gather_code = {};
  std::optional<kernels::BlockCode> reduce_code = {};
  // Stage 3: gather weights of fp8 layers (nn/fp8.h) in fp8, half the bytes of bf16. Their scales
  // follow from maxima that the ranks exchange once per step. GEMMs read the fp8 values directly,
  // with the same bits; any other reader of such a weight causes its unit to be decoded, and sees
  // rounded values. Not used for offloaded units nor for buffers that one rank owns; incompatible
  // with gather_code and captured graphs.
  bool gather_fp8 = false;
  uint64_t seed = 0;  // seed of the initial values

  friend bool operator==(const ShardingOptions&, const ShardingOptions&) = default;
};

// Waits for a collective whose tensors are about to be freed, and ignores its failure. While an
// exception unwinds it only destroys the handle, which cancels the collective.
void let_go(Work work);

// State shared by the units of a model.
struct ShardingContext {
  std::shared_ptr<DeviceMemory> memory;  // of the model's context, which may end before the model
  ShardGroups groups;
  ShardingOptions options;
  // Called before memory for a whole gradient is allocated, to limit how many exist at a time.
  std::function<void()> before_gradient;
  // Stream on which gathers wait, in place of the compute stream, for units whose parameters come
  // from the host or from a step that is still running: a prefetch then does not delay computation.
  // Null: no unit is offloaded.
  std::unique_ptr<Stream> gathers;
  int64_t owned_buffers = 0;  // number of flat buffers owned by one rank (FlatLayout::owner)
  // Communication of optimizers and clipping over `shard`; null: nothing is sharded.
  std::shared_ptr<const ShardPeers> peers;
  std::shared_ptr<const ShardPeers> all_peers;    // see OptimShard::all_peers
  std::shared_ptr<const ShardReplicas> replicas;  // communication over `replicate`; null: none
  // See DataParallel::set_replica_gradients().
  ReplicaGradients replica_gradients = ReplicaGradients::kSum;
  double exposed_seconds = 0;  // time spent waiting for collectives

  // Throws InternalError if the context has ended.
  Context& context() const;
  // Returns the group of the ranks that share a parameter.
  ProcessGroup& shard(bool of_experts) const {
    return of_experts ? *groups.expert_shard : *groups.shard;
  }
  // Throws like context(), as groups may have ended too.
  bool single() const {
    context();
    return groups.shard->size() == 1 && groups.replicate == nullptr;
  }
  void wait(const Work& work);
  CollectiveOptions collective(std::string_view tag, Traffic traffic) const {
    return {.tag = tag,
            .async = options.overlap,
            .stream = context().exec().stream,
            .traffic = traffic,
            .step = context().step()};
  }
};

}  // namespace shale::comm
