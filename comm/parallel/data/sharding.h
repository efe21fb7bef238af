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

// The stages of a pipeline, of which each rank has some parts of the model.
struct PipelineStages {
  ProcessGroup* group = nullptr;  // the ranks of this rank's pipeline, in order
  // Those that together hold every part of the gradient: `group`, or it and ShardGroups::shard.
  ProcessGroup* whole = nullptr;
  ProcessGroup* tie = nullptr;  // the two stages that have one table; null: this is none of them
  // Ranks of `group` that have a parameter, of the whole model, in order. A table that two stages
  // have is stepped by both, and counts on the first.
  std::map<const Parameter*, std::vector<int>> holders = {};

  int first_holder(const Parameter& parameter) const { return holders.at(&parameter).front(); }
  bool is_first_holder(const Parameter& parameter) const {
    return first_holder(parameter) == group->rank();
  }
};

// The ranks over which a model is trained. All groups outlive what uses them.
struct ShardGroups {
  // Each rank holds one shard, in rank order.
  ProcessGroup* shard = nullptr;
  // Mesh ranks that have parts of the same sequences: those of an inner axis of `shard`, and of
  // this process.
  int context = 1;
  // Hybrid sharding: the ranks with this rank's shard in other shard groups; null: there are none.
  // Gradients are added over `shard` first, then over `replicate`; bf16 sums are rounded after
  // each, so that only f32 gradients have the bits of one group of all ranks.
  ProcessGroup* replicate = nullptr;
  // The ranks that have the model's other leaves, where its layers are cut (comm/parallel/tensor):
  // over these the gradients of what every leaf has are added, and the gradient's norm. null: it is
  // not cut.
  ProcessGroup* tensor = nullptr;
  // Those of both, which have the parts of matrices that optimizers put together. null: such
  // optimizers are errors in stages 1 to 3 where several ranks have leaves.
  ProcessGroup* shard_and_tensor = nullptr;
  // Where ranks have different experts (comm/parallel/expert): of the ranks of `shard`, or of
  // `shard` and `tensor` where layers are cut, those that together have all, and those that have
  // the same as this one, over which those parameters are sharded and their gradients are added, in
  // place of `shard`. null: every rank has all experts, or its leaves of each.
  ProcessGroup* experts = nullptr;
  ProcessGroup* expert_shard = nullptr;
  // Groups in Lane::kModel, for what happens inside layers: graphs capture their collectives.
  std::vector<ProcessGroup*> layers = {};
  // For ReshardAfterForward::kSmallGroup: ranks [k n, (k + 1) n) of `shard`, inside a node.
  ProcessGroup* reshard = nullptr;
  // Null: every rank has a part of every parameter, or all of it.
  const PipelineStages* stages = nullptr;
  // Where this process has several mesh ranks: their models. null: it has one.
  const HostedModels* hosted = nullptr;
};

// Whose samples a replica's gradient is of, where hybrid sharding has several.
enum class ReplicaGradients : uint8_t {
  kSum,    // of all replicas: their gradients are added over ShardGroups::replicate
  kShare,  // its own: its share of that sum
  kOwn,    // its own, of a loss that is the mean over them alone: of local steps
};

// What stage 3 does with the parameters of a unit between its forward and its backward.
enum class ReshardAfterForward {
  kAuto,        // kYes, but kNo for a unit that encloses others: it is needed before and after them
  kYes,         // frees them; backward gathers them again
  kNo,          // keeps them: more memory, a third less communication
  kSmallGroup,  // keeps a shard of ShardGroups::reshard, so that backward gathers inside a node
};

// Parts of a unit that lie in host memory, beside the device's (runtime/offload). Masters are
// stepped there, by an offload::OptimizerOffload.
struct UnitOffload {
  offload::HostTier* tier = nullptr;  // masters and optimizer states; null: nothing is offloaded
  // From stage 2 on also this rank's shard of the gradients, which each reduction then sends there.
  bool gradients = false;
  // In stage 3 also this rank's shard of the parameters, which each gather then fetches.
  bool parameters = false;
  friend auto operator<=>(const UnitOffload&, const UnitOffload&) = default;
};

// How a unit keeps its parameters.
struct UnitOptions {
  DType compute = DType::kF32;  // of parameters as ops see them; below f32 there are f32 masters
  DType reduce = DType::kF32;   // of gradients, in memory and when they are added over ranks
  ReshardAfterForward reshard_after_forward = ReshardAfterForward::kAuto;
  // Stage 3 keeps parameters of fewer elements whole on every rank: gathering them takes longer
  // than they are worth.
  int64_t persist_below = 0;
  UnitOffload offload = {};
};

// Which parts of the training state are sharded (arXiv:1910.02054, section 5): optimizer states
// from stage 1, gradients from stage 2, parameters in stage 3.
struct ShardingOptions {
  int stage = 0;
  // Collectives run while this rank computes; false: the rank waits for each of them.
  bool overlap = true;
  // Adds micro-batches in an order that does not depend on the number of ranks: micro-batch j of
  // rank r is leaf j * ranks + r of one binary tree.
  bool reproducible = false;
  // From stage 2 on, in what codes (kernels/block_codes.h) the parameters of matrices are gathered,
  // and their gradients go to the rank that adds them up (ZeRO++, arXiv:2306.10209); none: as they
  // are. Buffers that one rank has, and gathers of a smaller group, have none.
  std::optional<kernels::BlockCode> gather_code = {};
  std::optional<kernels::BlockCode> reduce_code = {};
  // In stage 3 the weights of layers whose products are of fp8 (nn/fp8.h) are gathered as those
  // numbers, half the bytes of bf16, whose scales follow from maxima that the ranks exchange once
  // per step. Products read them as they come, with the same bits; what else reads such a weight
  // has its unit decoded, and finds it rounded. Units that are offloaded and buffers that one rank
  // has have none of it; it does not go with gather_code and with captured graphs.
  bool gather_fp8 = false;
  uint64_t seed = 0;  // of the initial values

  friend bool operator==(const ShardingOptions&, const ShardingOptions&) = default;
};

// Waits for a collective whose tensors are about to be freed, and ignores its failure. While an
// exception unwinds it only drops the handle: that gives the collective up.
void let_go(Work work);

// What the units of a model share.
struct ShardingContext {
  Context& context;
  ShardGroups groups;
  ShardingOptions options;
  // Called before memory for a whole gradient is taken, so that few of them live at a time.
  std::function<void()> before_gradient;
  // On which gathers take the place of the compute stream for units whose parameters come from the
  // host or from a step that goes on: so that one that is ahead of its use does not hold up what
  // the device computes meanwhile. Null: no unit is offloaded.
  std::unique_ptr<Stream> gathers;
  int64_t owned_buffers = 0;  // flat buffers that one rank has (FlatLayout::owner)
  // What optimizers and clipping do over `shard`; null where nothing is sharded.
  std::shared_ptr<const ShardPeers> peers;
  std::shared_ptr<const ShardPeers> all_peers;    // OptimShard::all_peers
  std::shared_ptr<const ShardReplicas> replicas;  // over `replicate`; null where there is none
  // DataParallel::set_replica_gradients()
  ReplicaGradients replica_gradients = ReplicaGradients::kSum;
  double exposed_seconds = 0;  // spent waiting for collectives

  // The ranks that share a parameter.
  ProcessGroup& shard(bool of_experts) const {
    return of_experts ? *groups.expert_shard : *groups.shard;
  }
  bool single() const { return groups.shard->size() == 1 && groups.replicate == nullptr; }
  void wait(const Work& work);
  CollectiveOptions collective(std::string_view tag, Traffic traffic) const {
    return {.tag = tag,
            .async = options.overlap,
            .stream = context.exec().stream,
            .traffic = traffic,
            .step = context.step()};
  }
};

}  // namespace shale::comm
