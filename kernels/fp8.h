#pragma once

#include "shale/base/view.h"
#include "shale/kernels/fp8_number.h"
#include "shale/kernels/gemm.h"
#include "shale/kernels/slot.h"

namespace shale::kernels {

// Products of numbers of 8 bits with scales: either of blocks, kFp8Block of the dimension that is
// summed over (DeepSeek-V3, arXiv:2412.19437, section 3.3, but for scales that are powers of two),
// or of whole tensors.
inline constexpr int64_t kFp8Block = 128;

enum class Fp8Format : uint8_t { kE4M3, kE5M2 };

// What shares a scale.
enum class Fp8Blocks : uint8_t {
  kLines,    // kFp8Block of a line
  kSquares,  // kFp8Block lines too, from a multiple of it on
  kTensor,   // all
};

// An operand of such a product. Its lines lie along what is summed over, which is all that Hopper's
// tensor cores take: a product of the transpose has an operand of its own. Element (i, j) is
// codes[i, j] * scales[j / kFp8Block, i].
struct Fp8Operand {
  View codes;   // [lines, length] u8; lines dense, from multiples of 16 bytes on
  View scales;  // [ceil(length / kFp8Block), lines] f32; rows dense, kFp8Block apart or a multiple
  Fp8Blocks blocks = Fp8Blocks::kLines;
  Fp8Format format = Fp8Format::kE4M3;

  bool defined() const { return codes.defined(); }
  int64_t lines() const { return codes.size(0); }
  int64_t length() const { return codes.size(1); }
};

// Throws ShapeError or DTypeError, naming op and operand, for one that is laid out otherwise.
void check_fp8_operand(const char* op, const char* name, const Fp8Operand& operand);

// How far apart lines of codes are, and rows of scales, in elements; and how many of those there
// are.
constexpr int64_t fp8_codes_stride(int64_t length) {
  return (length + 15) / 16 * 16;
}
constexpr int64_t fp8_scales_stride(int64_t lines) {
  return (lines + kFp8Block - 1) / kFp8Block * kFp8Block;
}
constexpr int64_t fp8_scale_rows(int64_t length) {
  return (length + kFp8Block - 1) / kFp8Block;
}

// rows = x, columns = xᵀ as operands, out of one read of x: of each number x / scale is rounded to
// the format, ties to even. The scale is the smallest power of two that brings the block's largest
// magnitude to the format's or less; a block with a number that is not finite has NaN. Blocks at
// the edges may be smaller. One of the two may be left out; else they have the same format and
// blocks. E5M2 goes with kTensor alone, for which x is read twice, as its largest magnitude is
// known before its first code. What lies between lines may be written.
struct QuantizeFp8Args {
  View x;                // [rows, columns] bf16, contiguous
  Fp8Operand rows{};     // of [rows, columns]
  Fp8Operand columns{};  // of [columns, rows]
};

void check_args(const QuantizeFp8Args& a);

// c = a bᵀ + bias + residual, or c += a bᵀ with `accumulate`; rounded once. Products of kFp8Block
// of K are added up, scaled, and added in f32. b is of E4M3; a of E5M2 goes with a b whose blocks
// are no lines. GPUs: of compute capability 9.0 alone.
struct Fp8GemmArgs {
  Fp8Operand a;             // [M, K]; its blocks are no squares
  Fp8Operand b;             // [N, K]
  View c;                   // [M, N] bf16 or f32, row-major with any row stride
  bool accumulate = false;  // without bias and residual only
  View bias{};              // [N] bf16; optional
  View residual{};          // [M, N], like c; optional
};

void check_args(const Fp8GemmArgs& a);

// The same product of bf16 operands that lie densely in memory, or nowhere, [M, K] and [N, K].
GemmArgs bf16_product(const Fp8GemmArgs& args, bf16* a, bf16* b);

inline Slot<QuantizeFp8Args> quantize_fp8{"quantize_fp8"};
inline Slot<Fp8GemmArgs> fp8_gemm{"fp8_gemm"};

}  // namespace shale::kernels
