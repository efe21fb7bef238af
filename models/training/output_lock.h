#pragma once

#include <cstdint>
#include <string>

#include "shale/runtime/io/file.h"

namespace shale::models {

// Process that writes to an output folder.
struct LockOwner {
  std::string host;
  std::string boot;  // which start of that host; empty: unknown
  int64_t pid = 0;
  int64_t started = 0;  // the process, in clock ticks since its host's start

  friend bool operator==(const LockOwner&, const LockOwner&) = default;
};
LockOwner this_process();

// Keeps two runs from writing to one folder, wherever they run. FOLDER/lock names the owner, who
// holds a lock of the system on it (flock), too, which ends with the process. What a killed run
// left is taken over where it is known to be gone:
//
//   - its host is this one, by name or by this start of the system, and no such process is there;
//   - or the file system's locks are valid for all who can see it, and nobody holds this one: a
//     disk of this host, or NFS with its server's locks.
//
// Else the owner may live on another host, and a person has to decide.
class OutputLock {
 public:
  // The folder exists. Waits for up to `patience_s` for an owner that is just ending. Throws
  // ConfigError that names the owner, and says what to do, if the folder is in use; DiskError.
  explicit OutputLock(const std::string& folder, double patience_s = 3);
  ~OutputLock();  // removes the file
  OutputLock(const OutputLock&) = delete;
  OutputLock& operator=(const OutputLock&) = delete;

 private:
  std::string try_to_take();

  std::string path_;
  FileHandle file_;
};

}  // namespace shale::models
