#pragma once

#include <cstddef>

namespace shale {

// Source of an allocator's large segments. A provider can be installed per memory tag; the
// communication layer uses this for memory that peers can access.
class MemoryProvider {
 public:
  virtual ~MemoryProvider() = default;

  // Returns at least `bytes` bytes, aligned to 4096. Throws OutOfMemoryError.
  virtual void* allocate(size_t bytes) = 0;
  // Frees the result of one allocate(), with its size.
  virtual void free(void* memory, size_t bytes) noexcept = 0;
  // True: the allocator takes exactly the requested bytes for each block, and does not cache them.
  virtual bool is_exact() const { return false; }
};

}  // namespace shale
