#include "shale/models/training/checks/disk_room.h"

#include <sys/statvfs.h>

#include <cstdlib>

namespace shale::models {
namespace {

std::string environment(const char* name, const char* fallback) {
  const char* const value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : fallback;
}

}  // namespace

std::optional<DiskRoom> disk_room(const std::string& folder) {
  struct statvfs disk {};
  if (statvfs(folder.c_str(), &disk) != 0) return {};
  const auto block = static_cast<int64_t>(disk.f_frsize);
  // A file system without a limit on the number of files reports 0 total and 0 free files.
  return DiskRoom{.free_bytes = static_cast<int64_t>(disk.f_bavail) * block,
                  .total_bytes = static_cast<int64_t>(disk.f_blocks) * block,
                  .can_add_files = disk.f_favail > 0 || disk.f_files == 0};
}

std::string temporary_folder() {
  return environment("TMPDIR", "/tmp");
}

std::vector<MpiFolder> mpi_folders() {
  return {
      {.name = "TMPDIR",
       .path = temporary_folder(),
       .if_full = "free some space, or set TMPDIR to another folder: mpirun can hang for minutes "
                  "without room for its files",
       .if_unusable = "set TMPDIR to a writable folder, in which mpirun keeps its files"},
      {.name = "/dev/shm",
       .path = environment("OMPI_MCA_btl_vader_backing_directory", "/dev/shm"),
       .if_full = "use docker run --shm-size=1g, or mpirun --mca btl_vader_backing_directory /tmp",
       .if_unusable = "mount a tmpfs there, or use mpirun --mca btl_vader_backing_directory /tmp"}};
}

// Returns twice the space measured with Open MPI 4.1: 8 MiB in TMPDIR, and 84 KiB per rank in
// /dev/shm. Those segments could grow to 4 MiB, but Shale sends little over MPI within a node.
int64_t room_for_mpi(int ranks) {
  constexpr int64_t kBase = int64_t{16} << 20, kRank = int64_t{168} << 10;
  return kBase + kRank * ranks;
}

}  // namespace shale::models
