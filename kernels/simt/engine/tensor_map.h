#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "shale/kernels/tensor_map_spec.h"

namespace shale::emulator {

using Coordinates = std::array<int, kernels::kMaxTensorMapDims>;

// A checked TensorMapSpec, with the missing dimensions filled with ones.
struct alignas(64) TensorMap {
  std::byte* data = nullptr;
  uint32_t element_bytes = 0, bytes = 0;  // bytes of an element, and of a box
  int dims = 0;
  bool swizzle = false;
  int64_t sizes[kernels::kMaxTensorMapDims] = {};         // elements per dimension
  int64_t stride_bytes[kernels::kMaxTensorMapDims] = {};  // stride of each dimension, in bytes
  int64_t box[kernels::kMaxTensorMapDims] = {};           // elements per dimension of a box
};

TensorMap make_tensor_map(const kernels::TensorMapSpec& spec);

// Returns the offset in shared memory to which the 128-byte swizzle moves a byte.
inline uint32_t swizzled(uint32_t offset) {
  return offset ^ (offset >> 7 & 7) << 4;
}

// Splits the box at coordinates `at` into pieces of at most 16 bytes. Calls fn(offset in shared
// memory, address in device memory, bytes) for each piece inside the array. `offset` is the box's
// own offset.
template <typename Fn>
void for_pieces(const TensorMap& map, uint32_t offset, const Coordinates& at, Fn&& fn) {
  constexpr int64_t kChunk = 16;
  const int64_t element = map.element_bytes, line_bytes = map.box[0] * element;
  const int64_t lines = map.box[1] * map.box[2] * map.box[3];
  const int64_t first = std::max<int64_t>(at[0], 0);
  const int64_t end = std::min<int64_t>(at[0] + map.box[0], map.sizes[0]);
  for (int64_t line = 0; line < lines; ++line) {
    const int64_t place[] = {0, at[1] + line % map.box[1], at[2] + line / map.box[1] % map.box[2],
                             at[3] + line / (map.box[1] * map.box[2])};
    std::byte* address = map.data;
    bool inside = true;
    for (int d = 1; d < kernels::kMaxTensorMapDims; ++d) {
      inside = inside && place[d] >= 0 && place[d] < map.sizes[d];
      if (inside) address += place[d] * map.stride_bytes[d];
    }
    if (!inside) continue;
    for (int64_t x = first; x < end;) {
      const int64_t in_line = (x - at[0]) * element;
      const int64_t bytes = std::min(kChunk - in_line % kChunk, (end - x) * element);
      const auto target = static_cast<uint32_t>(offset + line * line_bytes + in_line);
      fn(map.swizzle ? swizzled(target) : target, address + x * element,
         static_cast<size_t>(bytes));
      x += bytes / element;
    }
  }
}

}  // namespace shale::emulator
