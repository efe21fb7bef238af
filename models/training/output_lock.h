#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "shale/runtime/io/file.h"

namespace shale::models {

// Process that writes to an output folder.
struct LockOwner {
  std::string host;
  std::string boot;  // boot id of that host; empty: unknown
  int64_t pid = 0;
  int64_t started = 0;  // start of the process, in clock ticks since boot

  friend bool operator==(const LockOwner&, const LockOwner&) = default;
};
LockOwner this_process();

// Prevents two runs from writing to one folder, on whatever hosts they run. FOLDER/lock names the
// owner, which also holds a lock of the operating system on it (flock) that ends with the process.
// The lock of a killed run is taken over if its owner is known to be gone:
//
//   - its host is this one, by name or boot id, and it has no such process;
//   - or file locks of the file system are valid on all hosts that see it, and nobody holds this
//   one:
//     a local disk, or NFS with its server's locks.
//
// Otherwise the owner may be alive on another host, and the user has to decide.
class OutputLock {
 public:
  // The folder must exist. Waits up to `patience_s` seconds for an owner that is about to end.
  // Throws ConfigError, with the owner's name and what to do, if the folder is in use; DiskError.
  explicit OutputLock(const std::string& folder, double patience_s = 3);
  ~OutputLock();  // removes the file
  OutputLock(const OutputLock&) = delete;
  OutputLock& operator=(const OutputLock&) = delete;

 private:
  std::string try_to_take();

  std::string path_;
  FileHandle file_;
};

// Returns whether a run is writing to the folder, without taking its lock; nullopt: that cannot be
// found out on this host.
std::optional<bool> is_in_use(const std::string& folder);

}  // namespace shale::models
