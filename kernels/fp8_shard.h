#pragma once

#include "shale/base/view.h"
#include "shale/kernels/fp8.h"
#include "shale/kernels/slot.h"

namespace shale::kernels {

// Sharded fp8 GEMM weights. Each rank holds a range of a weight's elements, and ranks exchange the
// E4M3 codes that quantize_fp8() would compute from the values in bf16. If a block is spread over
// several ranks, its scale depends on the largest magnitude on all of them, so ranks reduce
// `largest` between fp8_largest and the other calls.
//
// `largest` is i32 of shape fp8_weight_blocks(): the bits of each block's largest magnitude. The
// bits are ordered like the magnitudes, and those of non-finite numbers are the largest.

// Shape of the blocks of a matrix [rows, columns]: squares, or one block.
inline Shape fp8_weight_blocks(Fp8Blocks blocks, const Shape& matrix) {
  if (blocks == Fp8Blocks::kTensor) return {1, 1};
  return {fp8_scale_rows(matrix[0]), fp8_scale_rows(matrix[1])};
}

// largest = max(largest, the largest magnitude in this range).
struct Fp8LargestArgs {
  View x;             // [count] f32: a range of the matrix elements in row-major order
  int64_t first = 0;  // index of the range's first element in the matrix
  int64_t columns = 0;
  View largest;
};

// Quantizes a range. All codes of a block that has a non-finite number are NaN.
struct Fp8EncodeArgs {
  View x;  // [count] f32: a range, as in Fp8LargestArgs
  int64_t first = 0;
  int64_t columns = 0;
  View largest;  // maxima of all blocks of the matrix
  View codes;    // [count] u8
};

// Dequantizes exactly: y = the numbers of all codes. Quantizing y again in the same blocks gives
// the same numbers.
struct Fp8DecodeArgs {
  View codes;    // [rows, columns] u8, contiguous
  View largest;  // maxima of all blocks of the matrix
  View y;        // [rows, columns] bf16, contiguous
};

// Makes from the codes the operands that quantize_fp8() would make from the dequantized matrix, and
// from its transpose. One of the two may be omitted.
struct Fp8OperandsArgs {
  View codes;            // [rows, columns] u8, contiguous
  View largest;          // maxima of all blocks of the matrix
  Fp8Operand rows{};     // operand of the [rows, columns] matrix; its codes may be `codes` itself
  Fp8Operand columns{};  // operand of the [columns, rows] transpose
};

void check_args(const Fp8LargestArgs& a);
void check_args(const Fp8EncodeArgs& a);
void check_args(const Fp8DecodeArgs& a);
void check_args(const Fp8OperandsArgs& a);

inline Slot<Fp8LargestArgs> fp8_largest{"fp8_largest"};
inline Slot<Fp8EncodeArgs> fp8_encode{"fp8_encode"};
inline Slot<Fp8DecodeArgs> fp8_decode{"fp8_decode"};
inline Slot<Fp8OperandsArgs> fp8_operands{"fp8_operands"};

// Maps an element to the index of its block in `largest`.
struct Fp8BlockIndex {
  int64_t across = 1;     // blocks side by side in a row of the matrix
  bool is_whole = false;  // the matrix is a single block
  explicit Fp8BlockIndex(const View& largest)
      : across(largest.size(1)), is_whole(largest.numel() == 1) {}

  constexpr int64_t of(int64_t row, int64_t column) const {
    return is_whole ? 0 : row / kFp8Block * across + column / kFp8Block;
  }
};

}  // namespace shale::kernels
