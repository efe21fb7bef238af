#pragma once

#include "shale/kernels/simt/shared.h"

namespace shale::kernels::SHALE_BACKEND::simt {

// A wgmma operand in shared memory, as its 64-bit descriptor (PTX ISA, "Matrix descriptor format").
// kernels/simt/wgmma.h describes the layout.
template <bool kMnMajor>
struct WgmmaTile {
  uint64_t descriptor;
};

// Returns a descriptor. Its fields are in units of 16 bytes. From bit 0: the start address, below
// 2^18 bytes. From bit 16: the distance of adjacent 64-column tiles (unused by k_major). From bit
// 32: the distance of adjacent groups of 8 lines, 8 times 128 bytes. Bit 62: 128-byte swizzle.
// `offset` (bytes from the start) is a separate argument, so that descriptors of one tile differ by
// constants.
__device__ __forceinline__ uint64_t wgmma_descriptor(const void* tile, int offset,
                                                     int tile_bytes) {
  constexpr uint64_t kLineGroup = 8 * 128, kSwizzle128 = uint64_t{1} << 62;
  const uint64_t layout =
      static_cast<uint64_t>(tile_bytes / 16) << 16 | (kLineGroup / 16) << 32 | kSwizzle128;
  return (shared_address(tile) / 16 | layout) + static_cast<uint64_t>(offset / 16);
}

// The hardware swizzles the address bits itself, so the descriptor has k's address without swizzle.
template <int kElementBytes = 2>
__device__ __forceinline__ WgmmaTile<false> k_major(const void* tile, int k) {
  return {wgmma_descriptor(tile, kElementBytes * k, 16)};
}
__device__ __forceinline__ WgmmaTile<true> mn_major(const void* tile, int k, int tile_bytes) {
  return {wgmma_descriptor(tile, 128 * k, tile_bytes)};
}

}  // namespace shale::kernels::SHALE_BACKEND::simt
