#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace shale::models {

// The room on the disk, or in the memory, that a folder lies in.
struct DiskRoom {
  int64_t free_bytes = 0;  // for this user
  int64_t total_bytes = 0;
  bool can_add_files = true;
};

// Nothing where the folder cannot be looked at; errno then says why.
std::optional<DiskRoom> disk_room(const std::string& folder);

// TMPDIR, or /tmp.
std::string temporary_folder();

// A folder in which Open MPI keeps files while ranks run. Where there is no room for them mpirun
// can hang for minutes, and ranks die of SIGBUS.
struct MpiFolder {
  std::string name;  // "TMPDIR"
  std::string path;
  std::string if_full;      // what to do about it
  std::string if_unusable;  // it is not there, or cannot be written to
};
std::vector<MpiFolder> mpi_folders();

// What `ranks` ranks of a node take in each of them, rounded up.
int64_t room_for_mpi(int ranks);

}  // namespace shale::models
