#pragma once

#include <optional>

#include "shale/comm/parallel/data/data_parallel.h"

namespace shale::comm {

// True if check_replicas() has anything to compare.
bool has_replicas(const DataParallel& parallel);

// Compares the ranks' copies of parameters. They are bit-identical as long as memory, links and
// kernels work correctly. In stages 0 to 2 it compares the parameters; in stage 3 the master shards
// of replicas; with tensor parallelism also parameters that every tensor rank has, over
// ShardGroups::tensor. Call it between steps. `everyone`: the group of all ranks, in a pipeline the
// ranks of this stage. rank: number of this rank in messages, by default its rank in `everyone`.
// Throws CommError on all compared ranks, naming the first parameter that differs, and the ranks
// that differ from the majority. Collective, blocking; waits for the device, and copies the
// parameters to the host.
void check_replicas(DataParallel& parallel, ProcessGroup& everyone, std::optional<int> rank = {});

}  // namespace shale::comm
