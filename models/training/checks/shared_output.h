#pragma once

#include <string>
#include <vector>

#include "shale/comm/world.h"

namespace shale::models {

// Which ranks see one folder.
struct OutputOwners {
  bool is_shared = true;           // all ranks see that of rank 0
  bool is_owner = false;           // this rank is the lowest one that sees its folder
  std::vector<std::string> hosts;  // by rank
};

// Finds out whether the hosts of all ranks see the folder, which exists on that of rank 0, by files
// that one rank of each host makes there for a moment. own_folders: each host may have a folder of
// its own, which is made where it does not exist; otherwise that is a ConfigError that names the
// hosts, on all ranks. Throws DiskError if a host cannot write to the folder. Collective.
OutputOwners find_owners(const std::string& folder, const comm::World& world,
                         comm::ProcessGroup& group, bool own_folders);

}  // namespace shale::models
