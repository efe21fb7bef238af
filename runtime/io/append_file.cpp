#include "shale/runtime/io/append_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
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
  try {
    write_kept();
  } catch (const DiskError& error) {
    log_warning(error.what(), "; the last ", writes_, " rows are lost");
  }
  // Some network file systems report a full disk only when a file is closed.
  if (close(fd_) != 0) log_error(path_, ": cannot be closed: ", std::strerror(errno));
}

void AppendFile::write(std::string_view bytes) {
  constexpr std::chrono::seconds kFirstPause{1}, kLongestPause{60};
  const std::lock_guard lock(mutex_);
  kept_ += bytes;
  ++writes_;
  const auto now = std::chrono::steady_clock::now();
  if (pause_.count() > 0 && now < next_try_ && writes_ <= kMostKept) return;
  try {
    write_kept();
  } catch (const DiskError& error) {
    if (writes_ > kMostKept) throw;
    if (pause_.count() == 0) {
      log_warning(error.what(), "; up to ", kMostKept, " rows are kept in memory until it works");
    }
    pause_ = std::clamp(2 * pause_, kFirstPause, kLongestPause);
    next_try_ = now + pause_;
  }
}

void AppendFile::write_kept() {
  while (!kept_.empty()) {
    const ssize_t written = ::write(fd_, kept_.data(), kept_.size());
    if (written < 0 && errno != EINTR) throw disk_error(path_, "be written", errno);
    if (written > 0) kept_.erase(0, static_cast<size_t>(written));
  }
  if (pause_.count() > 0) log_info(path_, " can be written again; no row is lost");
  pause_ = {};
  writes_ = 0;
}

void AppendFile::warn_if_removed() {
  struct stat info {};
  if (warned_ || ::fstat(fd_, &info) != 0 || info.st_nlink > 0) return;
  warned_ = true;
  log_warning(path_, ": the file was removed; what was written to it is lost");
}

void AppendFile::sync() {
  warn_if_removed();
  {
    const std::lock_guard lock(mutex_);
    write_kept();
  }
  while (::fsync(fd_) != 0) {
    if (errno != EINTR) throw disk_error(path_, "be synced", errno);
  }
}

}  // namespace shale
