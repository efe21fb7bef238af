#pragma once

#include <cstddef>
#include <memory>
#include <new>

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
  void operator()(std::byte* memory) const {
    ::operator delete (memory, std::align_val_t{kDirectAlignment});
  }
};

// Memory that begins at such a multiple. Not initialised.
using DirectMemory = std::unique_ptr<std::byte, FreeDirectMemory>;

inline DirectMemory allocate_direct_memory(size_t bytes) {
  return DirectMemory(
      static_cast<std::byte*>(::operator new (bytes, std::align_val_t{kDirectAlignment})));
}

}  // namespace shale
