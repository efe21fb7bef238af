#pragma once

#include <optional>

#include "shale/comm/parallel/data/data_parallel.h"

namespace shale::comm {

// True if check_replicas() has anything to compare.
bool has_replicas(const DataParallel& parallel);

// Compares the ranks' copies of parameters, which are bit-identical as long as memory, links and
// kernels work correctly: in stages 0 to 2 the parameters, in stage 3 the master shards of
// replicas, with tensor parallelism also parameters that every tensor rank has, over
// ShardGroups::tensor. Call it between steps. `everyone`: the group of all ranks, or in a pipeline
// of the ranks with this stage; rank: number of this rank in messages, by default its rank in
// `everyone`. Throws CommError, naming the first parameter that differs and the ranks that differ
// from the majority, on all compared ranks. Collective, blocking; waits for the device, and copies
// the parameters to the host.
void check_replicas(DataParallel& parallel, ProcessGroup& everyone, std::optional<int> rank = {});

}  // namespace shale::comm
