#pragma once

#include <string>
#include <string_view>

namespace shale {

// A file that grows at its end, for what a run tells as it goes: each piece is handed to the system
// at once, so that a process that dies leaves what it wrote. Errors are DiskError with the path and
// the system's reason.
class AppendFile {
 public:
  // Makes the file if there is none; its name is on the disk when this returns.
  explicit AppendFile(std::string path);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  const std::string& path() const { return path_; }
  void write(std::string_view bytes);
  // What was written before is on the disk when this returns: a machine that stops loses none of
  // it. Warns, once, if somebody has removed the file. May be called on another thread than
  // write().
  void sync();

 private:
  void warn_if_removed();

  const std::string path_;
  int fd_ = -1;
  bool warned_ = false;
};

}  // namespace shale
