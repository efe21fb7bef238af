#pragma once

#include "shale/kernels/fp8.h"
#include "shale/kernels/simt/simt.h"

// A thread block makes fp8 operands from a tile of kFp8Block rows and columns, which is in its
// registers. Half a warp has 8 rows, and each of its threads has 8 neighbouring columns of them.
// The threads write the codes of rows directly to memory: 8 bytes each, contiguous across threads.
// In the transpose, a thread has 8 codes of a line. They go through shared memory, so that half a
// warp writes all kFp8Block codes of a line.

namespace shale::kernels::SHALE_BACKEND {

inline constexpr int kFp8TileThreads = 256;
// Number of rows, and of columns, per thread.
inline constexpr int kFp8Run = 8;
// Runs per line, one for each lane of half a warp.
inline constexpr int kFp8RunsOfLine = static_cast<int>(kFp8Block) / kFp8Run;

using Fp8CodeRun = Pack<uint8_t, kFp8Run>;

struct Fp8OperandMemory {
  uint8_t* codes;  // null: the operand is omitted
  float* scales;
  int64_t codes_stride, scales_stride;
};

inline Fp8OperandMemory memory_of(const Fp8Operand& operand) {
  if (!operand.defined()) return {};
  return {operand.codes.as<uint8_t>(), operand.scales.as<float>(), operand.codes.stride(0),
          operand.scales.stride(0)};
}

// A thread's part of the block's tile.
struct Fp8TilePlace {
  int run = static_cast<int>(threadIdx.x) % kFp8RunsOfLine;   // index of the thread's 8 columns
  int rows = static_cast<int>(threadIdx.x) / kFp8RunsOfLine;  // index of the thread's 8 rows
  int64_t first_row, first_column;                            // position in the matrix
};

__device__ __forceinline__ Fp8TilePlace fp8_tile_place(int64_t tile_row, int64_t tile_column) {
  Fp8TilePlace own;
  own.first_row = tile_row + own.rows * kFp8Run;
  own.first_column = tile_column + own.run * kFp8Run;
  return own;
}

// Shared memory for the codes of the transpose. The runs of a line are permuted, so that neither
// writing nor reading threads have bank conflicts.
struct Fp8TransposeScratch {
  Fp8CodeRun runs[kFp8Block][kFp8RunsOfLine];
  __device__ __forceinline__ Fp8CodeRun& at(int line, int run) {
    return runs[line][run ^ line / kFp8Run % kFp8RunsOfLine];
  }
};

// Writes the tile to the transpose of a [rows, columns] matrix. codes_of(j) returns the codes of
// the thread's column j, in row order, with zeros for rows beyond the matrix. All threads of a
// block must call this function.
template <typename CodesOf>
__device__ __forceinline__ void store_fp8_columns(const Fp8OperandMemory& to,
                                                  const Fp8TilePlace& own, int64_t rows,
                                                  int64_t columns, const CodesOf& codes_of) {
  Fp8TransposeScratch& scratch = shared<Fp8TransposeScratch>();
#pragma unroll
  for (int j = 0; j < kFp8Run; ++j) {
    store_shared_pack(scratch.at(own.run * kFp8Run + j, own.rows).at, codes_of(j));
  }
  __syncthreads();
  // Each thread now writes 8 rows of every 16th column, which other threads have put into shared
  // memory.
  const int64_t tile_row = own.first_row - own.rows * kFp8Run;
  const int64_t tile_column = own.first_column - own.run * kFp8Run;
  const int64_t row = tile_row + own.run * kFp8Run;
  if (row >= fp8_codes_stride(rows)) return;
#pragma unroll
  for (int line = own.rows; line < kFp8Block; line += kFp8TileThreads / kFp8RunsOfLine) {
    if (tile_column + line >= columns) return;
    store_pack(to.codes + (tile_column + line) * to.codes_stride + row,
               load_pack<kFp8Run>(scratch.at(line, own.run).at));
  }
}

}  // namespace shale::kernels::SHALE_BACKEND
