#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "shale/runtime/io/file.h"

namespace shale::models {

// Process that writes to an output folder.
struct LockOwner {
  std::string host;
  std::string boot;  // boot id of the host, and PID namespace of the process; empty: unknown
  int64_t pid = 0;
  int64_t started = 0;  // start time of the process, in clock ticks since boot

  friend bool operator==(const LockOwner&, const LockOwner&) = default;
};
LockOwner this_process();

// System calls and times of a lock. Tests replace them.
struct LockOptions {
  double patience_s = 200;  // maximum wait for an owner that may be gone; 0: no wait at all
  double ending_s = 3;      // maximum wait for an owner that is known to live
  double touch_s = 30;      // interval at which the owner touches the lock file
  double silence_s = 180;   // an owner that has not touched the file for this long is gone
  double settle_s = 1;      // without flock, time in which another process may take the same lock
  int (*flock)(int fd, int operation) = nullptr;  // null: the system's flock()
  // Replaces f_type of statfs(); null: calls statfs().
  long (*system_type)(const std::string& path) = nullptr;
};

// Prevents two runs from writing to one folder, on whatever hosts they run. FOLDER/lock names the
// owner. The owner holds an flock() on the file until its process ends, and touches the file every
// 30 s. A new run takes over the lock of a killed run if one of these shows that the owner is gone:
// - The owner ran on this host since its last boot, and its process does not exist.
// - Nobody holds the file lock, and the locks of the file system are valid on all hosts that see
//   the file: on a local disk, or on NFS with its server's locks.
// - Nobody holds the file lock as far as this host can see, and the file has not been touched for
//   three minutes by the clock of its file system.
class OutputLock {
 public:
  // The folder must exist. Waits for an owner that is about to end, or that may turn out to be
  // gone. Throws ConfigError if the owner lives on this host, UnavailableError if it may live
  // elsewhere, with its name and what to do; DiskError.
  explicit OutputLock(const std::string& folder, const LockOptions& options = {});
  ~OutputLock();  // removes the file
  OutputLock(const OutputLock&) = delete;
  OutputLock& operator=(const OutputLock&) = delete;

  // Throws UnavailableError if another run has taken the lock. That happens if this process was
  // stopped for so long that it seemed to be gone. Can be called on any thread.
  void check() const;

 private:
  struct Attempt;
  Attempt try_to_take();
  void touch_until_end();

  const LockOptions options_;
  std::string path_;
  FileHandle file_;
  std::mutex mutex_;
  std::condition_variable ends_;
  bool is_ending_ = false;
  std::thread thread_;  // touches the file
};

// Returns true if a run is writing to the folder. Does not take its lock. nullopt: this host cannot
// find out.
std::optional<bool> is_in_use(const std::string& folder);

}  // namespace shale::models
