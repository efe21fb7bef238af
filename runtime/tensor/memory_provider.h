#pragma once

#include <cstddef>

namespace shale {

// Where an allocator gets its memory from, in large pieces. One can be installed per memory tag:
// this is how the communication layer hands in memory that peers can reach.
class MemoryProvider {
 public:
  virtual ~MemoryProvider() = default;

  // At least `bytes` bytes, aligned to 4096. Throws OutOfMemoryError.
  virtual void* allocate(size_t bytes) = 0;
  // `memory` and `bytes` are those of one allocate().
  virtual void free(void* memory, size_t bytes) noexcept = 0;
};

}  // namespace shale
