#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace shale::comm {

// Identifies a segment for other processes of this node. Plain data: it is sent to them.
struct SegmentAddress {
  int32_t pid = 0;
  int32_t fd = -1;
  uint64_t inode = 0;  // detects a descriptor that was reused for another file
  uint64_t bytes = 0;
};

// Memory that other processes can map: a memfd, an anonymous file in memory. It has no name that
// could be left behind, and no separate size limit; it is freed when the last process ends. Peers
// open it through /proc/<pid>/fd/<fd>, which the kernel allows for processes of the same user.
class SharedSegment {
 public:
  // Makes zeroed, page-aligned memory. Throws OutOfMemoryError.
  static SharedSegment create(size_t bytes);
  // Maps a peer's segment; returns nullopt if the system denies access.
  static std::optional<SharedSegment> attach(const SegmentAddress& address);

  SharedSegment() = default;
  ~SharedSegment();
  SharedSegment(SharedSegment&& other) noexcept;
  SharedSegment& operator=(SharedSegment&& other) noexcept;

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  SegmentAddress address() const;  // only for a segment that this process made

  // Returns the pages to the system at once, even if peers still map them. Any later access to the
  // memory raises SIGBUS.
  void discard() noexcept;

 private:
  SharedSegment(void* data, size_t bytes, int fd) : data_(data), bytes_(bytes), fd_(fd) {}

  void* data_ = nullptr;
  size_t bytes_ = 0;
  int fd_ = -1;  // -1 if another process made the segment
};

}  // namespace shale::comm
