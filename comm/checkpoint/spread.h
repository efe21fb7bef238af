#pragma once

#include <string>

#include "shale/comm/process_group.h"

namespace shale::comm {

// Copies files of a checkpoint from hosts that have them to hosts that lack them, so that every
// rank can read all files. `folder`: the same path on all hosts. `owns`: this rank reads and writes
// the folder of its host. Compares only names and sizes of files; their checksums are checked when
// they are read. Collective. Throws on all ranks: DataError for an invalid manifest; DiskError;
// MissingInputError if no host has a file. That message names the host that wrote the file ("hosts"
// in the manifest's state lists the hosts by rank).
void spread_checkpoint(ProcessGroup& group, const std::string& folder, bool owns);

}  // namespace shale::comm
