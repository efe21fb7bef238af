#include "shale/runtime/io/append_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "shale/base/error.h"
#include "shale/base/log.h"
#include "shale/runtime/io/file.h"

namespace shale {
namespace {

DiskError disk_error(const std::string& path, std::string_view what, int error) {
  return DiskError(
      cat(path, ": cannot ", what, ": ", std::strerror(error), " (errno ", error, ")"));
}

}  // namespace

AppendFile::AppendFile(std::string path) : path_(std::move(path)) {
  fd_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd_ < 0) throw disk_error(path_, "be opened for writing", errno);
  Folder::open(std::filesystem::path(path_).parent_path().string()).sync();
}

AppendFile::~AppendFile() {
  warn_if_removed();
  // Some network file systems report a full disk only when a file is closed.
  if (close(fd_) != 0) log_error(path_, ": cannot be closed: ", std::strerror(errno));
}

void AppendFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR) throw disk_error(path_, "be written", errno);
    if (written > 0) bytes.remove_prefix(static_cast<size_t>(written));
  }
}

void AppendFile::warn_if_removed() {
  struct stat info {};
  if (warned_ || ::fstat(fd_, &info) != 0 || info.st_nlink > 0) return;
  warned_ = true;
  log_warning(path_, ": the file was removed; what was written to it is lost");
}

void AppendFile::sync() {
  warn_if_removed();
  while (::fsync(fd_) != 0) {
    if (errno != EINTR) throw disk_error(path_, "be synced", errno);
  }
}

}  // namespace shale
