#pragma once

#include <memory>

#include "shale/comm/parallel/data/sharding.h"

namespace shale::comm {

// All ranks' vectors, one after another; x itself if there is one rank.
Tensor gather_norms(ShardingContext& shared, ProcessGroup& group, const Tensor& x);

// What optimizers ask of the ranks that have the other parts of matrices: those that share a copy,
// and those with other leaves. Null: there are none. `shared` outlives it.
std::shared_ptr<const ShardPeers> peers_over(ShardingContext& shared);
// Those that have all experts, without sharding (OptimShard::all_peers); null: the peers have.
std::shared_ptr<const ShardPeers> all_peers_over(ShardingContext& shared);

}  // namespace shale::comm
