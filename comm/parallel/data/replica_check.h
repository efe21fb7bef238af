#pragma once

#include "shale/comm/parallel/data/data_parallel.h"

namespace shale::comm {

// Whether there is anything that check_replicas() could compare.
bool has_replicas(const DataParallel& parallel);

// Compares the copies of parameters that ranks hold, which are the same to the last bit as long as
// every memory, link and kernel does what it should: the parameters as they are used in stages 0 to
// 2, the master shards of ranks that replicate each other in stage 3. Between steps. `everyone`:
// the group of all ranks. Throws CommError, naming the first parameter that differs and the ranks
// that are alone with their copy, on all ranks that were compared. Collective, blocking; waits for
// the device, and copies the parameters to the host.
void check_replicas(DataParallel& parallel, ProcessGroup& everyone);

}  // namespace shale::comm
