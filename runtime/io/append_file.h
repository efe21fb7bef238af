#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

namespace shale {

// A file that a run appends to. Each write() goes directly to the system, so a process that dies
// keeps what it wrote. If the disk fails, a warning is logged and up to kMostKept writes are kept
// in memory. They are written once the disk works again. Errors are DiskError with the path and the
// system's reason.
class AppendFile {
 public:
  static constexpr int64_t kMostKept = 10'000;

  // Creates the file if it does not exist; its name is on the disk when this returns.
  explicit AppendFile(std::string path);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  const std::string& path() const { return path_; }
  // Throws DiskError if the disk fails and kMostKept writes are already kept in memory.
  void write(std::string_view bytes);
  // Flushes earlier writes to the disk, so that they survive a machine failure. Warns once if the
  // file was removed. Another thread than that of write() may call it.
  void sync();

 private:
  void write_kept();
  void warn_if_removed();

  const std::string path_;
  int fd_ = -1;
  bool warned_ = false;  // true: a warning was logged that the file was removed

  std::mutex mutex_;               // protects the members below
  std::string kept_;               // bytes that could not be written yet
  int64_t writes_ = 0;             // number of writes in kept_
  std::chrono::seconds pause_{0};  // time between attempts while the disk fails; 0: it works
  std::chrono::steady_clock::time_point next_try_;
};

}  // namespace shale
