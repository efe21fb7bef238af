#pragma once

#include <cstdint>

#include "shale/kernels/simt/engine/site.h"

namespace shale::emulator {

// Emulated tensor-core instructions. Each of the 32 threads of a warp calls them.
// kernels/simt/matrix.h describes the fragments.

// Copies `count` (1, 2, 4) matrices of 8x8 16-bit elements between shared memory and registers.
// Lane 8 m + r provides the address of row r of matrix m; the addresses of other lanes are ignored.
void load_matrix(uint32_t* registers, const void* row, int count, bool transposed, Site site);
void store_matrix(void* row, const uint32_t* registers, int count, bool transposed, Site site);

enum class MmaType : uint8_t { kBF16, kF16, kTF32, kE4M3, kE5M2 };

// Computes d [16, 8] += a [16, k] b [k, 8]; k is 16, or 8 for kTF32. 8-bit types are not supported.
void mma(MmaType type, float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], Site site);

}  // namespace shale::emulator
