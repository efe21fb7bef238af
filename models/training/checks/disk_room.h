#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace shale::models {

// Free space of the file system, on a disk or in memory, that holds a folder.
struct DiskRoom {
  int64_t free_bytes = 0;  // free space for this user
  int64_t total_bytes = 0;
  bool can_add_files = true;
};

// Returns nothing if the folder cannot be examined; errno then has the reason.
std::optional<DiskRoom> disk_room(const std::string& folder);

// Returns TMPDIR, or /tmp.
std::string temporary_folder();

// Folder in which Open MPI keeps files while ranks run. If it has no space left, mpirun can hang
// for minutes, and ranks die of SIGBUS.
struct MpiFolder {
  std::string name;  // "TMPDIR"
  std::string path;
  std::string if_full;      // remedy
  std::string if_unusable;  // remedy if it is missing or not writable
};
std::vector<MpiFolder> mpi_folders();

// Returns the space that `ranks` ranks of a node need in each of these folders, rounded up.
int64_t room_for_mpi(int ranks);

}  // namespace shale::models
