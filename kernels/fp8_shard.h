#pragma once

#include "shale/base/view.h"
#include "shale/kernels/fp8.h"
#include "shale/kernels/slot.h"

namespace shale::kernels {

// Weights of products of fp8 of which each rank has a range of the elements: they travel as the
// codes of E4M3 that quantize_fp8() makes of their values in bf16. The scale of a block whose parts
// are on several ranks follows from the largest magnitude of them all, so that ranks exchange those
// between the first call below and the others.
//
// largest: fp8_weight_blocks() of the matrix, i32: the bits of the largest magnitude of each block,
// which grow with it; those of what is not finite are the largest.

// How many blocks a matrix [rows, columns] has: squares, or one.
inline Shape fp8_weight_blocks(Fp8Blocks blocks, const Shape& matrix) {
  if (blocks == Fp8Blocks::kTensor) return {1, 1};
  return {fp8_scale_rows(matrix[0]), fp8_scale_rows(matrix[1])};
}

// largest = max(largest, that of what is here).
struct Fp8LargestArgs {
  View x;             // [count] f32: a range of the elements of the matrix, row by row
  int64_t first = 0;  // where in the matrix it begins
  int64_t columns = 0;
  View largest;
};

// The codes of a range; of all of a block that has a number that is not finite NaN.
struct Fp8EncodeArgs {
  View x;  // [count] f32, as above
  int64_t first = 0;
  int64_t columns = 0;
  View largest;  // of the whole matrix
  View codes;    // [count] u8
};

// y = the numbers of all codes, exactly. To quantize them again in the same blocks gives the same
// numbers.
struct Fp8DecodeArgs {
  View codes;    // [rows, columns] u8, contiguous
  View largest;  // of the whole matrix
  View y;        // [rows, columns] bf16, contiguous
};

// The operands of products that quantize_fp8() makes of the numbers of all codes, or of their
// transpose, out of the codes alone. One of the two may be left out.
struct Fp8OperandsArgs {
  View codes;            // [rows, columns] u8, contiguous
  View largest;          // of the whole matrix
  Fp8Operand rows{};     // of [rows, columns]; its codes may be `codes`, which stay
  Fp8Operand columns{};  // of [columns, rows]
};

void check_args(const Fp8LargestArgs& a);
void check_args(const Fp8EncodeArgs& a);
void check_args(const Fp8DecodeArgs& a);
void check_args(const Fp8OperandsArgs& a);

inline Slot<Fp8LargestArgs> fp8_largest{"fp8_largest"};
inline Slot<Fp8EncodeArgs> fp8_encode{"fp8_encode"};
inline Slot<Fp8DecodeArgs> fp8_decode{"fp8_decode"};
inline Slot<Fp8OperandsArgs> fp8_operands{"fp8_operands"};

// Which block of `largest` an element is in.
struct Fp8BlockIndex {
  int64_t across = 1;     // blocks side by side
  bool is_whole = false;  // there is one
  explicit Fp8BlockIndex(const View& largest)
      : across(largest.size(1)), is_whole(largest.numel() == 1) {}

  constexpr int64_t of(int64_t row, int64_t column) const {
    return is_whole ? 0 : row / kFp8Block * across + column / kFp8Block;
  }
};

}  // namespace shale::kernels
