#pragma once

#include <memory>

#include "shale/comm/parallel/data/sharding.h"

namespace shale::comm {

// Gathers the vectors of all ranks, in rank order; returns x itself if there is one rank.
Tensor gather_norms(ShardingContext& shared, ProcessGroup& group, const Tensor& x);

// Communication of optimizers with the ranks that have the other parts of matrices: shards and
// tensor shards. Null: there are none. `shared` outlives it.
std::shared_ptr<const ShardPeers> peers_over(ShardingContext& shared);
// Communication with all ranks that together have all experts, without sharding
// (OptimShard::all_peers); null: the peers do.
std::shared_ptr<const ShardPeers> all_peers_over(ShardingContext& shared);

}  // namespace shale::comm
