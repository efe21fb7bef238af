#pragma once

#include <string>

#include "shale/comm/process_group.h"

namespace shale::comm {

// Copies the files of a checkpoint to each host's own folder that lacks them, from hosts that have
// them, so that every rank can read all of them. `folder`: the same path on all hosts; `owns`: this
// rank reads and writes the folder for its host. Only names and sizes of files are compared; their
// checksums are checked later, on reading. Collective. Throws, on all ranks, MissingInputError with
// the file and the host that wrote it (the manifest's state has "hosts", by rank) if no host has
// it; DataError for an invalid manifest; DiskError.
void spread_checkpoint(ProcessGroup& group, const std::string& folder, bool owns);

}  // namespace shale::comm
