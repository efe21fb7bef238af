#pragma once

#include <cstddef>
#include <span>

namespace shale {

// Keeps the process alive when pages of a mapped file cannot be read, because the file was
// truncated, or its disk or server failed. The system then sends SIGBUS to the reading thread. The
// handler replaces the mapping from that page on by zeros, and makes found() true. After reading,
// callers must check found() and discard the data if it is true. Other SIGBUS signals go to the
// previous handler.
class UnreadablePages {
 public:
  // `mapping` must begin at a page and stay mapped as long as this object exists.
  explicit UnreadablePages(std::span<const std::byte> mapping);
  ~UnreadablePages();
  UnreadablePages(const UnreadablePages&) = delete;
  UnreadablePages& operator=(const UnreadablePages&) = delete;

  bool found() const;

 private:
  struct Range;
  friend struct RangeList;
  Range* range_;
};

}  // namespace shale
