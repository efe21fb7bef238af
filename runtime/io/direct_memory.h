#pragma once

#include <cstddef>
#include <memory>

namespace shale {

// Alignment that direct I/O requires of addresses, offsets and sizes. Disks require 512 or 4096.
inline constexpr size_t kDirectAlignment = 4096;

constexpr size_t align_down(size_t bytes) {
  return bytes / kDirectAlignment * kDirectAlignment;
}
constexpr size_t align_up(size_t bytes) {
  return align_down(bytes + kDirectAlignment - 1);
}

struct FreeDirectMemory {
  size_t bytes = 0;
  void operator()(std::byte* memory) const;
};

// Zeroed memory aligned to kDirectAlignment, in huge pages if it is large: a disk processes a
// request with a few long segments several times faster than one with a thousand small pages.
using DirectMemory = std::unique_ptr<std::byte, FreeDirectMemory>;

DirectMemory allocate_direct_memory(size_t bytes);  // throws OutOfMemoryError

}  // namespace shale
