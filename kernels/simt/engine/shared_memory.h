#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "shale/kernels/simt/engine/mapping.h"

namespace shale::emulator {

class Block;

// The shared memory of a block. The dynamic part starts at offset 0, static objects follow when
// they are first asked for; behind each part lies a red zone. What is handed out holds 0xff: NaN in
// every float format.
class SharedMemory {
 public:
  static constexpr size_t kBytes = size_t{256} << 10;  // more than any GPU has
  // What a block has that has not asked for more (cudaFuncAttributeMaxDynamicSharedMemorySize).
  static constexpr size_t kUnasked = size_t{48} << 10;

  explicit SharedMemory(Block& block);

  void reset(size_t dynamic_bytes, size_t limit);
  std::byte* data() const { return arena_; }
  std::byte* dynamic_data() const { return arena_; }
  // The object that belongs to `key`, the same for all threads of the block.
  std::byte* static_object(const void* key, size_t bytes, size_t alignment);

  bool contains(const void* p) const {
    return static_cast<size_t>(static_cast<const std::byte*>(p) - arena_) < kBytes;
  }
  uint32_t offset_of(const void* p) const;  // fails unless p points into the arena
  // Fails unless [p, p + bytes) lies within one part and p is a multiple of `alignment`.
  uint32_t check(const void* p, size_t bytes, size_t alignment, const char* what) const;
  bool allocated(size_t offset, size_t bytes) const;
  std::string describe(size_t offset) const;  // "dynamic shared memory + 0x10"
  // A red zone that somebody wrote to, as a description, or nothing. Called when the block has
  // ended.
  std::string damage() const;

 private:
  struct Part {
    const void* key;  // null: the dynamic part
    size_t begin, bytes, alignment;
  };
  std::byte* add_part(const void* key, size_t bytes, size_t alignment);
  // What a GPU's block would need with one more static object: those, then the dynamic part at a
  // multiple of its alignment.
  size_t needed_with(size_t bytes, size_t alignment) const;

  Block& block_;
  Mapping mapping_;  // the arena between two pages that nobody may touch
  std::byte* arena_;
  std::vector<Part> parts_;
  size_t end_ = 0;  // of the last part
  size_t limit_ = 0;
};

}  // namespace shale::emulator
