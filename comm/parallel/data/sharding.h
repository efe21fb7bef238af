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
  // Ranks that together hold the whole gradient: those of `group`, or of `group` and
  // ShardGroups::shard.
  ProcessGroup* whole = nullptr;
  ProcessGroup* tie = nullptr;  // two stages that share a tied table; null: not this stage
  // Pipeline ranks that have a parameter, in order. Two stages may have copies of a tied table:
  // both update it, and checkpoints take the values of the first stage.
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
  // Number of mesh ranks that share each sequence, on an inner axis of `shard` or in this process.
  int context = 1;
  // Hybrid sharding: the ranks that have the same shard in other shard groups; null: no replicas.
  // Gradients are added over `shard` first, then over `replicate`. bf16 sums are rounded twice, so
  // only f32 gradients have the same bits as with one group of all ranks.
  ProcessGroup* replicate = nullptr;
  // Tensor-parallel ranks (comm/parallel/tensor). Gradient norms, and gradients of parameters that
  // all these ranks hold, are added over this group. null: no tensor parallelism.
  ProcessGroup* tensor = nullptr;
  // The ranks of both `shard` and `tensor`, for optimizers that need whole matrices. null: such
  // optimizers are errors in stages 1 to 3 with tensor parallelism.
  ProcessGroup* shard_and_tensor = nullptr;
  // Expert parallelism (comm/parallel/expert), over the ranks of `shard`, or of `shard` and
  // `tensor`. experts: ranks that together have all experts. expert_shard: ranks with the same
  // experts. It replaces `shard` for the parameters of experts: they are sharded, and their
  // gradients added, over it. null: every rank has all experts, or its tensor shard of each.
  ProcessGroup* experts = nullptr;
  ProcessGroup* expert_shard = nullptr;
  // Groups in Lane::kModel for collectives inside layers. Graphs capture these collectives.
  std::vector<ProcessGroup*> layers = {};
  // For ReshardAfterForward::kSmallGroup: n consecutive ranks of `shard` on one node, [k n, (k + 1)
  // n).
  ProcessGroup* reshard = nullptr;
  // Null if there is no pipeline.
  const PipelineStages* stages = nullptr;
  // Models of the mesh ranks in this process; null if there is only one mesh rank.
  const HostedModels* hosted = nullptr;
};

// Samples that determine a replica's gradient in hybrid sharding.
enum class ReplicaGradients : uint8_t {
  kSum,    // samples of all replicas: gradients are added over ShardGroups::replicate
  kShare,  // the replica's own samples; the sum of these gradients over replicas is that of kSum
  kOwn,    // the replica's own samples, over which the loss is a mean; for local steps
};

// What happens to a unit's parameters between forward and backward in stage 3.
enum class ReshardAfterForward {
  // kNo for a unit that encloses other units, because it is needed before and after them; otherwise
  // kYes
  kAuto,
  kYes,         // frees the parameters; backward gathers them again
  kNo,          // keeps the parameters; needs more memory, but a third less communication
  kSmallGroup,  // keeps a shard of ShardGroups::reshard; backward gathers it inside a node
};

// Parts of a unit that are kept in host memory instead of device memory (runtime/offload). An
// offload::OptimizerOffload updates the masters in host memory.
struct UnitOffload {
  offload::HostTier* tier = nullptr;  // has the masters and optimizer states; null: no offload
  // Stages 2 and 3: also offloads this rank's gradient shard. Downloads sums after reductions.
  bool gradients = false;
  // Stage 3: also offloads this rank's parameter shard. Each gather uploads it first.
  bool parameters = false;
  friend auto operator<=>(const UnitOffload&, const UnitOffload&) = default;
};

// Storage of a unit's parameters.
struct UnitOptions {
  DType compute = DType::kF32;  // parameter dtype in ops; below f32 there are f32 masters
  DType reduce = DType::kF32;   // gradient dtype, for storage and reduction
  ReshardAfterForward reshard_after_forward = ReshardAfterForward::kAuto;
  // Stage 3: parameters with fewer elements stay whole on every rank. Gathering them would cost
  // more time than their memory is worth.
  int64_t persist_below = 0;
  UnitOffload offload = {};
};

// Sharding of the training state (arXiv:1910.02054, section 5): optimizer states from stage 1,
// gradients from stage 2, parameters in stage 3.
struct ShardingOptions {
  int stage = 0;
  // True: collectives overlap with computation. False: the caller waits for each of them.
  bool overlap = true;
  // True: micro-batches are added in an order that does not depend on the number of ranks.
  // Micro-batch j of rank r is leaf j * ranks + r of one binary tree.
  bool reproducible = false;
  // Stages 2 and 3: quantization codes (kernels/block_codes.h; ZeRO++, arXiv:2306.10209).
  // gather_code: for gathering matrix parameters. reduce_code: for sending their gradients to the
  // rank that adds them. nullopt: unquantized. Not used for buffers that one rank owns, nor for
  // gathers in a smaller group.
  std::optional<kernels::BlockCode> gather_code = {};
  std::optional<kernels::BlockCode> reduce_code = {};
  // Stage 3: gathers weights of fp8 layers (nn/fp8.h) in fp8, half the bytes of bf16. Their scales
  // follow from maxima that the ranks exchange once per step. GEMMs read the fp8 values directly,
  // and give the same bits. If any other operation reads such a weight, its unit is decoded, and
  // the operation sees rounded values. Not used for offloaded units nor for buffers that one rank
  // owns; incompatible with gather_code and captured graphs.
  bool gather_fp8 = false;
  uint64_t seed = 0;  // seed of the initial values

  friend bool operator==(const ShardingOptions&, const ShardingOptions&) = default;
};

// Waits for a collective before its tensors are freed, and ignores its failure. While an exception
// unwinds, it only destroys the handle, which cancels the collective.
void let_go(Work work);

// State shared by the units of a model.
struct ShardingContext {
  std::shared_ptr<DeviceMemory> memory;  // of the model's context, which may end before the model
  ShardGroups groups;
  ShardingOptions options;
  // Called before memory for a whole gradient is allocated, to limit how many exist at a time.
  std::function<void()> before_gradient;
  // Stream on which gathers of offloaded units wait, in place of the compute stream. Their
  // parameters come from the host, or from a step that is still running; so a prefetch does not
  // delay computation. Null: no unit is offloaded.
  std::unique_ptr<Stream> gathers;
  int64_t owned_buffers = 0;  // number of flat buffers owned by one rank (FlatLayout::owner)
  // Communication of optimizers and gradient clipping over `shard`; null: nothing is sharded.
  std::shared_ptr<const ShardPeers> peers;
  std::shared_ptr<const ShardPeers> all_peers;    // see OptimShard::all_peers
  std::shared_ptr<const ShardReplicas> replicas;  // communication over `replicate`; null: none
  // See DataParallel::set_replica_gradients().
  ReplicaGradients replica_gradients = ReplicaGradients::kSum;
  double exposed_seconds = 0;  // time that the host has waited for collectives

  // Throws InternalError if the context has ended.
  Context& context() const;
  // Returns the group of the ranks that share a parameter.
  ProcessGroup& shard(bool of_experts) const {
    return of_experts ? *groups.expert_shard : *groups.shard;
  }
  // True if there is one rank. Throws what context() throws, because the groups may have ended too.
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
