#include "shale/comm/node/shared_segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "shale/base/error.h"

namespace shale::comm {
namespace {

void* map(int fd, size_t bytes) {
  void* const data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return nullptr;
  // Only a hint: systems without large pages for shared memory refuse it and use small ones.
  madvise(data, bytes, MADV_HUGEPAGE);
  return data;
}

uint64_t inode_of(int fd) {
  struct stat status {};
  return fstat(fd, &status) == 0 ? status.st_ino : 0;
}

}  // namespace

SharedSegment SharedSegment::create(size_t bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  bytes = (bytes + page - 1) / page * page;
  const auto fail = [&](const char* what) {
    return OutOfMemoryError(cat("shared memory of ", format_bytes(static_cast<double>(bytes)), ": ",
                                what, ": ", std::strerror(errno)));
  };
  const int fd = memfd_create("shale", MFD_CLOEXEC);
  if (fd < 0) throw fail("memfd_create");
  SharedSegment segment(nullptr, bytes, fd);  // the segment owns fd from now on
  if (ftruncate(fd, static_cast<off_t>(bytes)) != 0) throw fail("ftruncate");
  segment.data_ = map(fd, bytes);
  if (segment.data_ == nullptr) throw fail("mmap");
  return segment;
}

std::optional<SharedSegment> SharedSegment::attach(const SegmentAddress& address) {
  const std::string path = cat("/proc/", address.pid, "/fd/", address.fd);
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  // In another process namespace the pid may be that of another process, with another file.
  void* const data = inode_of(fd) == address.inode ? map(fd, address.bytes) : nullptr;
  close(fd);  // the mapping keeps the memory
  if (data == nullptr) return std::nullopt;
  return SharedSegment(data, address.bytes, -1);
}

SharedSegment::~SharedSegment() {
  if (data_ != nullptr) munmap(data_, bytes_);
  if (fd_ >= 0) close(fd_);
}

SharedSegment::SharedSegment(SharedSegment&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      fd_(std::exchange(other.fd_, -1)) {}

SharedSegment& SharedSegment::operator=(SharedSegment&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(fd_, other.fd_);
  return *this;
}

SegmentAddress SharedSegment::address() const {
  return {
      .pid = static_cast<int32_t>(getpid()), .fd = fd_, .inode = inode_of(fd_), .bytes = bytes_};
}

void SharedSegment::discard() noexcept {
  // If this fails, the memory is freed only when the last mapping is removed.
  if (fd_ >= 0 && ftruncate(fd_, 0) != 0) return;
}

}  // namespace shale::comm
