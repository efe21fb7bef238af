#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "shale/kernels/simt/engine/mapping.h"

namespace shale::emulator {

class Block;

// The shared memory of a block. The dynamic part starts at offset 0; static objects follow when
// they are first used. Unused bytes, the red zone, follow each part. New memory is filled with
// 0xff, which is NaN in every float format.
class SharedMemory {
 public:
  static constexpr size_t kBytes = size_t{256} << 10;  // size of the arena, more than any GPU has
  // Default limit of a block in bytes, which a launch can raise
  // (cudaFuncAttributeMaxDynamicSharedMemorySize).
  static constexpr size_t kUnasked = size_t{48} << 10;

  explicit SharedMemory(Block& block);

  void reset(size_t dynamic_bytes, size_t limit);
  std::byte* data() const { return arena_; }
  std::byte* dynamic_data() const { return arena_; }
  // Returns the static object for `key`, the same one for all threads of the block.
  std::byte* static_object(const void* key, size_t bytes, size_t alignment);

  bool contains(const void* p) const {
    return static_cast<size_t>(static_cast<const std::byte*>(p) - arena_) < kBytes;
  }
  uint32_t offset_of(const void* p) const;  // fails unless p is in shared memory
  // Returns the offset of p. Fails unless [p, p + bytes) is within one part and p is a multiple of
  // `alignment`.
  uint32_t check(const void* p, size_t bytes, size_t alignment, const char* what) const;
  bool allocated(size_t offset, size_t bytes) const;
  std::string describe(size_t offset) const;  // "dynamic shared memory (64 bytes) + 16"
  // Describes a write to a red zone, or returns an empty text. Called when the block has ended.
  std::string damage() const;

 private:
  struct Part {
    const void* key;  // key of the static object; null: the dynamic part
    size_t begin, bytes, alignment;
  };
  std::byte* add_part(const void* key, size_t bytes, size_t alignment);
  // Returns the shared memory that a block would need on a GPU with one more static object: the
  // static objects, then the dynamic part at a multiple of its alignment.
  size_t needed_with(size_t bytes, size_t alignment) const;

  Block& block_;
  Mapping mapping_;  // the arena, and a guard page on each side
  std::byte* arena_;
  std::vector<Part> parts_;
  size_t end_ = 0;  // end of the last part, in bytes
  size_t limit_ = 0;
};

}  // namespace shale::emulator
