#include "shale/comm/parallel/data/shard_peers.h"

#include <vector>

namespace shale::comm {

Tensor gather_norms(ShardingContext& shared, ProcessGroup& group, const Tensor& x) {
  if (group.size() == 1) return x;
  Tensor all = empty(shared.context(), {x.numel() * group.size()}, x.dtype(), MemoryTag::kComm,
                     "gradient norm");
  group.all_gather(x, all, {.tag = "gradient norm", .stream = shared.context().exec().stream});
  return all;
}

namespace {

ProcessGroup* ranks_with_parts(const ShardingContext& shared) {
  const ShardGroups& groups = shared.groups;
  const bool is_sharded = shared.options.stage > 0;
  if (groups.tensor == nullptr || groups.tensor->size() == 1) {
    return is_sharded ? groups.shard : nullptr;
  }
  return is_sharded ? groups.shard_and_tensor : groups.tensor;
}

std::shared_ptr<ShardPeers> peers_among(ShardingContext& shared, ProcessGroup& group) {
  auto peers = std::make_shared<ShardPeers>();
  peers->ranks = &group;
  peers->rank = group.rank();
  peers->size = group.size();
  peers->sum = [&shared, &group](const Tensor& x) {
    shared.wait(group.all_reduce_sum(
        x, {.tag = "optimizer statistics", .stream = shared.context().exec().stream}));
  };
  peers->gather = [&shared, &group](const Tensor& x) { return gather_norms(shared, group, x); };
  peers->exchange = [&shared, &group](const Tensor& in, const std::vector<int64_t>& in_counts,
                                      const Tensor& out, const std::vector<int64_t>& out_counts) {
    const Work work = group.all_to_all_v(in, in_counts, out, out_counts,
                                         shared.collective("matrices", Traffic::kGradients));
    return [&shared, work, in, out] { shared.wait(work); };
  };
  return peers;
}

}  // namespace

std::shared_ptr<const ShardPeers> peers_over(ShardingContext& shared) {
  if (ranks_with_parts(shared) == nullptr) return nullptr;
  const auto peers = peers_among(shared, *ranks_with_parts(shared));
  peers->have_all_experts = shared.groups.experts == nullptr || shared.options.stage > 0;
  return peers;
}

std::shared_ptr<const ShardPeers> all_peers_over(ShardingContext& shared) {
  const ShardGroups& groups = shared.groups;
  if (groups.experts == nullptr || shared.options.stage > 0) return nullptr;
  const bool has_leaves = groups.tensor != nullptr && groups.tensor->size() > 1;
  ProcessGroup* const all = has_leaves ? groups.shard_and_tensor : groups.shard;
  return all != nullptr ? peers_among(shared, *all) : nullptr;
}

}  // namespace shale::comm
