#pragma once

#include <cstdint>

namespace shale::kernels::cpu {

inline constexpr int64_t kFewRows = 32;  // of c: so few that reading b is the work

// How c is cut into blocks: the unit of work of one thread. It depends on the arguments of
// gemm_blocks() only, because the bits of a product depend on the block that it is part of.
struct GemmBlocks {
  int64_t m = 0, n = 0;
  int64_t rows = 0, cols = 0;  // of a block; the last ones may be smaller
  int64_t row_blocks = 0, col_blocks = 0;

  struct Block {
    int64_t row = 0, col = 0;    // of the block's first element
    int64_t rows = 0, cols = 0;  // its size
    int64_t row_block = 0;
    int edge = 0;  // 0 whole, 1 last of its row, 2 in the last row, 3 both
  };
  static constexpr int kEdges = 4;

  int64_t count() const { return row_blocks * col_blocks; }
  Block at(int64_t row_block, int64_t col_block) const;
  // The order of work: consecutive blocks share their part of the larger operand, so that it is
  // read from memory once.
  Block block(int64_t index) const;
};

// What the width and the height of a block depend on, besides the sizes.
enum class GemmKind : uint8_t {
  kDenseBlock,  // b transposed, and the product goes to a dense block
  kDenseRows,   // b transposed, and the product goes to c, whose rows follow one another
  kStrided,     // b transposed, and the product goes to any other c
  kWide,        // b's rows of f32 are dense: nothing to pack
  kInterleave,  // b's rows of bf16 are dense: pairs of rows are interleaved
};

// For c [m, n] = a·b over k. None is zero, but k may be. avx512: whether oneDNN uses it.
GemmBlocks gemm_blocks(int64_t m, int64_t n, int64_t k, GemmKind kind, bool avx512);

// The same for dot products: all rows, and columns that are worth a task, but many, so that threads
// end together. No bits depend on them.
GemmBlocks blocks_of_dots(int64_t m, int64_t n, int64_t k);

}  // namespace shale::kernels::cpu
