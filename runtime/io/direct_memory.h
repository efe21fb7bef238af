#pragma once

#include <cstddef>
#include <memory>

namespace shale {

// What addresses, offsets and sizes have to be multiples of for reads and writes that go between
// memory and the disk without the system's cache. Disks want 512 or this.
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

// Memory that begins at such a multiple, in huge pages if it is large: a disk takes a request for a
// few long stretches several times faster than for as many bytes in a thousand small pages. Zero.
using DirectMemory = std::unique_ptr<std::byte, FreeDirectMemory>;

DirectMemory allocate_direct_memory(size_t bytes);  // throws OutOfMemoryError

}  // namespace shale
