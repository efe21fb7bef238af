#pragma once

#include "shale/kernels/simt/shared.h"

namespace shale::kernels::SHALE_BACKEND::simt {

// An operand of wgmma in shared memory, as its 64-bit descriptor (PTX ISA, "Matrix descriptor
// format"); see kernels/simt/wgmma.h for what lies there.
template <bool kMnMajor>
struct WgmmaTile {
  uint64_t descriptor;
};

// In units of 16 bytes: where it starts, from bit 0 on, which is below 2^18 bytes; from bit 16 the
// distance of neighbouring 64-column tiles (unused by k_major); from bit 32 that of neighbouring
// groups of 8 lines, which is 8 times 128 bytes. Bit 62 says: 128-byte swizzle. `offset`, bytes from
// the start, is a number of its own, so that descriptors of one tile differ by constants.
__device__ __forceinline__ uint64_t wgmma_descriptor(const void* tile, int offset,
                                                     int tile_bytes) {
  constexpr uint64_t kLineGroup = 8 * 128, kSwizzle128 = uint64_t{1} << 62;
  const uint64_t layout =
      static_cast<uint64_t>(tile_bytes / 16) << 16 | (kLineGroup / 16) << 32 | kSwizzle128;
  return (shared_address(tile) / 16 | layout) + static_cast<uint64_t>(offset / 16);
}

// The swizzle permutes by address bits, so that columns of a line are found at the address which
// they would have without it.
template <int kElementBytes = 2>
__device__ __forceinline__ WgmmaTile<false> k_major(const void* tile, int k) {
  return {wgmma_descriptor(tile, kElementBytes * k, 16)};
}
__device__ __forceinline__ WgmmaTile<true> mn_major(const void* tile, int k, int tile_bytes) {
  return {wgmma_descriptor(tile, 128 * k, tile_bytes)};
}

}  // namespace shale::kernels::SHALE_BACKEND::simt
