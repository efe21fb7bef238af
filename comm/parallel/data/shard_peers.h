#pragma once

#include <memory>

#include "shale/comm/parallel/data/sharding.h"

namespace shale::comm {

// Gathers the vectors x of all ranks, in rank order; returns x itself if there is one rank.
Tensor gather_norms(ShardingContext& shared, ProcessGroup& group, const Tensor& x);

// Returns the communication of optimizers between the ranks that have parts of a matrix: shards of
// data parallelism and tensor shards. Null if no matrix is divided. `shared` must outlive the
// result.
std::shared_ptr<const ShardPeers> peers_over(ShardingContext& shared);
// Returns the communication between all ranks that together have all experts, for stage 0
// (OptimShard::all_peers). Null if these are the ranks of peers_over().
std::shared_ptr<const ShardPeers> all_peers_over(ShardingContext& shared);

}  // namespace shale::comm
