#pragma once

#include <cstddef>

namespace shale {

// Source of an allocator's large segments. Each memory tag can have its own provider; the
// communication layer uses this for memory that peers can access.
class MemoryProvider {
 public:
  virtual ~MemoryProvider() = default;

  // Returns at least `bytes` bytes, aligned to 4096. Throws OutOfMemoryError.
  virtual void* allocate(size_t bytes) = 0;
  // Frees the memory that one allocate(bytes) returned.
  virtual void free(void* memory, size_t bytes) noexcept = 0;
  // True: the allocator requests exactly the bytes of each block, and does not cache blocks.
  virtual bool is_exact() const { return false; }
};

}  // namespace shale
