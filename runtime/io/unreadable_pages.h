#pragma once

#include <cstddef>
#include <span>

namespace shale {

// Keeps the process alive when pages of a mapped file cannot be read: the file became shorter, or
// its disk or server failed. The system then sends SIGBUS to whoever reads them. From the first
// such page on, the mapping is replaced by zeros, and found() says so: whoever reads the mapping
// asks afterwards, and throws away what was read. Any other SIGBUS goes to the handler that was
// there before.
class UnreadablePages {
 public:
  // `mapping` begins at a page, and stays mapped as long as this object.
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
