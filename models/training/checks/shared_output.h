#pragma once

#include <string>
#include <vector>

#include "shale/comm/world.h"

namespace shale::models {

// Result of find_owners(): which ranks see one output folder.
struct OutputOwners {
  bool is_shared = true;           // all ranks see the folder of rank 0
  bool is_owner = false;           // this rank is the lowest one that sees its folder
  std::vector<std::string> hosts;  // host of each rank
};

// Finds out which hosts share the folder, which exists on rank 0's host: one rank of each host
// creates a file in it for a moment. own_folders: hosts may have separate folders, which are
// created where they do not exist; otherwise separate folders are a ConfigError that names the
// hosts, on all ranks. Throws DiskError if a host cannot write to the folder. Collective.
OutputOwners find_owners(const std::string& folder, const comm::World& world,
                         comm::ProcessGroup& group, bool own_folders);

}  // namespace shale::models
