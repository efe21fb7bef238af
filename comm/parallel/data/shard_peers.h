#pragma once

#include <memory>

#include "shale/comm/parallel/data/sharding.h"

namespace shale::comm {

// All ranks' vectors, one after another; x itself if there is one rank.
Tensor gather_norms(ShardingContext& shared, ProcessGroup& group, const Tensor& x);

// What optimizers ask of the ranks that share a copy. `shared` outlives it.
std::shared_ptr<const ShardPeers> peers_over(ShardingContext& shared);

}  // namespace shale::comm
