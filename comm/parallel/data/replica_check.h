#pragma once

#include <optional>

#include "shale/comm/parallel/data/data_parallel.h"

namespace shale::comm {

// Whether there is anything that check_replicas() could compare.
bool has_replicas(const DataParallel& parallel);

// Compares the copies of parameters that ranks hold, which are the same to the last bit as long as
// every memory, link and kernel does what it should: the parameters as they are used in stages 0 to
// 2, the master shards of ranks that replicate each other in stage 3; of a model whose layers are
// cut also what every leaf has, over ShardGroups::tensor. Between steps. `everyone`: the group of
// all ranks, or in a pipeline of those that have this rank's stage; rank: what messages call this
// rank, by default its rank there. Throws CommError, naming the first parameter that differs and
// the ranks
// that are alone with their copy, on all ranks that were compared. Collective, blocking; waits for
// the device, and copies the parameters to the host.
void check_replicas(DataParallel& parallel, ProcessGroup& everyone, std::optional<int> rank = {});

}  // namespace shale::comm
