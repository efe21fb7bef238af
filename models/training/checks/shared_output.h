#pragma once

#include <string>
#include <vector>

#include "shale/comm/world.h"

namespace shale::models {

// Result of find_owners(): which ranks see the same output folder.
struct OutputOwners {
  bool is_shared = true;           // all ranks see the folder of rank 0
  bool is_owner = false;           // this rank is the lowest one that sees its folder
  std::vector<std::string> hosts;  // host of each rank
};

// Finds out which hosts share the folder, which must exist on rank 0's host. For that, one rank of
// each host creates a file in it for a moment. own_folders: hosts may have separate folders, which
// are created if they do not exist. If false, separate folders are a ConfigError on all ranks that
// names the hosts. Throws DiskError if a host cannot write to the folder. Collective.
OutputOwners find_owners(const std::string& folder, const comm::World& world,
                         comm::ProcessGroup& group, bool own_folders);

}  // namespace shale::models
