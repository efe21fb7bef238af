#pragma once

#include <cstdint>

namespace shale::kernels::cpu {

// Maximum rows of c for which reading b takes most of the time.
inline constexpr int64_t kFewRows = 32;

// Division of c into blocks, which are the work units of threads. It depends only on the arguments
// of gemm_blocks(), because the bits of an element depend on its block.
struct GemmBlocks {
  int64_t m = 0, n = 0;
  int64_t rows = 0, cols = 0;  // size of a block; the last ones may be smaller
  int64_t row_blocks = 0, col_blocks = 0;

  struct Block {
    int64_t row = 0, col = 0;    // position of the block's first element
    int64_t rows = 0, cols = 0;  // size of the block
    int64_t row_block = 0;
    // whether the block is in the last column of blocks (1), the last row (2), both (3) or neither
    // (0)
    int edge = 0;
  };
  static constexpr int kEdges = 4;

  int64_t count() const { return row_blocks * col_blocks; }
  Block at(int64_t row_block, int64_t col_block) const;
  // Returns the index-th block to process. Consecutive blocks share their part of the larger
  // operand, so that it is read from memory once.
  Block block(int64_t index) const;
};

// Layouts that, besides the sizes, determine the width and height of a block.
enum class GemmKind : uint8_t {
  kDenseBlock,  // b transposed; the result goes to a dense block
  kDenseRows,   // b transposed; the result goes to c, whose rows are dense
  kStrided,     // b transposed; the result goes to any other c
  kWide,        // b has dense rows of f32, which need no packing
  kInterleave,  // b has dense rows of bf16; packing interleaves pairs of rows
  kPacked,      // not by oneDNN: run_packed()
};

// Returns the blocks for c [m, n] = a·b over k. m and n are not zero; k may be. avx512: oneDNN uses
// AVX-512.
GemmBlocks gemm_blocks(int64_t m, int64_t n, int64_t k, GemmKind kind, bool avx512);

// Returns the blocks for dot products: all rows, and few columns per block, so that threads end at
// about the same time. The bits do not depend on these blocks.
GemmBlocks blocks_of_dots(int64_t m, int64_t n, int64_t k);

}  // namespace shale::kernels::cpu
