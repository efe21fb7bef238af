#pragma once

#include <string>

#include "shale/comm/process_group.h"

namespace shale::comm {

// Gives each host's own folder of a checkpoint the files that it lacks, from hosts that have them,
// so that every rank can read all of them. `folder`: the same path on all hosts; `owns`: this rank
// is the one of its host that reads and writes there. Files count by name and size; their checksums
// are checked when they are read. Collective. Throws, on all ranks, MissingInputError with the file
// and the host that wrote it (the manifest's state has "hosts", by rank) if no host has it;
// DataError for an invalid manifest; DiskError.
void spread_checkpoint(ProcessGroup& group, const std::string& folder, bool owns);

}  // namespace shale::comm
