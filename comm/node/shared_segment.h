#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace shale::comm {

// How another process of this node finds a segment. Plain data: it is sent to that process.
struct SegmentAddress {
  int32_t pid = 0;
  int32_t fd = -1;
  uint64_t inode = 0;  // tells a descriptor that was reused from the one that was meant
  uint64_t bytes = 0;
};

// Memory that other processes can map: a memfd, an anonymous file in memory. It has no name that
// could be left behind, and no limit of its own: when the last process is gone, by whatever end, so
// is the memory. Peers open it through /proc/<pid>/fd/<fd>, which the kernel allows for processes
// of the same user.
class SharedSegment {
 public:
  // Zeros, page-aligned. Throws OutOfMemoryError.
  static SharedSegment create(size_t bytes);
  // A peer's segment; nothing where the system does not let us see it.
  static std::optional<SharedSegment> attach(const SegmentAddress& address);

  SharedSegment() = default;
  ~SharedSegment();
  SharedSegment(SharedSegment&& other) noexcept;
  SharedSegment& operator=(SharedSegment&& other) noexcept;

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  SegmentAddress address() const;  // of a segment that this process made

  // Gives the pages back to the system at once, even where peers still map them. Whoever touches
  // the memory afterwards dies of SIGBUS.
  void discard() noexcept;

 private:
  SharedSegment(void* data, size_t bytes, int fd) : data_(data), bytes_(bytes), fd_(fd) {}

  void* data_ = nullptr;
  size_t bytes_ = 0;
  int fd_ = -1;  // the creator's; attached segments need none
};

}  // namespace shale::comm
