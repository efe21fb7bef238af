#include "runtime/io/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "runtime/base/error.h"

namespace shale {
namespace {

// Linux writes at most 2 GiB at a time; 1 GiB keeps pieces aligned.
constexpr size_t kMaxWrite = size_t{1} << 30;
constexpr int kMaxAttempts = 1000;

// After a rename the new name is on the disk only when the folder is.
int sync_folder(const std::string& path) {
  std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (folder.empty()) folder = std::filesystem::path(".");
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return errno;
  const int error = ::fsync(fd) == 0 ? 0 : errno;
  ::close(fd);
  return error == EINVAL ? 0 : error;  // a file system that has nothing to sync
}

}  // namespace

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)) {
  const std::filesystem::path target = path_;
  for (int attempt = 0; fd_ < 0; ++attempt) {
    // Other processes, also on other machines, may write next to us: O_EXCL settles it.
    const std::string name =
        cat('.', target.filename().string(), ".tmp-", ::getpid(), '-', attempt);
    temporary_ = (target.parent_path() / name).string();
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd_ < 0 && (errno != EEXIST || attempt == kMaxAttempts)) {
      const int error = errno;
      temporary_.clear();
      fail("cannot be created", error);
    }
  }
}

AtomicFile::~AtomicFile() {
  discard();
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      fd_(std::exchange(other.fd_, -1)) {}

AtomicFile& AtomicFile::operator=(AtomicFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(temporary_, other.temporary_);
  std::swap(fd_, other.fd_);
  return *this;
}

void AtomicFile::discard() noexcept {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  temporary_.clear();
}

void AtomicFile::fail(const char* what, int error) const {
  throw DiskError(cat(path_, ": ", what, ": ", std::strerror(error), " (errno ", error, ")"));
}

void AtomicFile::reserve(int64_t bytes) {
  if (bytes <= 0) return;
  int status = 0;
  do {
    status = ::fallocate(fd_, 0, 0, bytes);
  } while (status != 0 && errno == EINTR);
  if (status != 0 && errno != EOPNOTSUPP && errno != ENOSYS) {
    const int error = errno;
    fail(cat("no room for ", bytes, " bytes").c_str(), error);
  }
}

void AtomicFile::write_at(int64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(fd_, bytes.data(), std::min(bytes.size(), kMaxWrite), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("write failed", errno);
    // Never seen, but a loop that makes no progress would hang.
    if (written == 0) fail("write failed", EIO);
    bytes = bytes.subspan(static_cast<size_t>(written));
    offset += written;
  }
}

void AtomicFile::commit(int64_t bytes) {
  if (::ftruncate(fd_, bytes) != 0) fail("cannot be sized", errno);
  if (::fsync(fd_) != 0) fail("fsync failed", errno);
  // Some network file systems report a failed write only here.
  if (::close(std::exchange(fd_, -1)) != 0) fail("close failed", errno);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail("rename failed", errno);
  temporary_.clear();
  if (const int error = sync_folder(path_); error != 0) fail("fsync of its folder failed", error);
}

void write_file_atomically(const std::string& path, std::string_view text) {
  AtomicFile file(path);
  file.write_at(0, std::as_bytes(std::span(text)));
  file.commit(static_cast<int64_t>(text.size()));
}

}  // namespace shale
