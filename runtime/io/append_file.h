#pragma once

#include <string>
#include <string_view>

namespace shale {

// A file that a run appends to. Each write() goes directly to the system, so a process that dies
// keeps what it wrote. Errors are DiskError with the path and the system's reason.
class AppendFile {
 public:
  // Creates the file if it does not exist; its name is on the disk when this returns.
  explicit AppendFile(std::string path);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  const std::string& path() const { return path_; }
  void write(std::string_view bytes);
  // Flushes earlier writes to the disk, so that they survive a machine failure. Warns once if the
  // file was removed. May be called on another thread than write().
  void sync();

 private:
  void warn_if_removed();

  const std::string path_;
  int fd_ = -1;
  bool warned_ = false;
};

}  // namespace shale
