#pragma once

#include "shale/base/view.h"
#include "shale/kernels/fp8_number.h"
#include "shale/kernels/gemm.h"
#include "shale/kernels/slot.h"

namespace shale::kernels {

// GEMMs of fp8 operands with scales: per block of kFp8Block numbers along the summed dimension
// (DeepSeek-V3, arXiv:2412.19437, section 3.3, but with powers of two), or per tensor.
inline constexpr int64_t kFp8Block = 128;

enum class Fp8Format : uint8_t { kE4M3, kE5M2 };

// The numbers that share a scale.
enum class Fp8Blocks : uint8_t {
  kLines,    // kFp8Block consecutive numbers of a line
  kSquares,  // kFp8Block lines x kFp8Block numbers
  kTensor,   // the whole tensor
};

// An operand of an fp8 GEMM. Its lines run along the summed dimension, the only layout that
// Hopper's tensor cores accept: a GEMM with the transpose needs a second operand. Element (i, j) is
// codes[i, j] * scales[j / kFp8Block, i].
struct Fp8Operand {
  // [lines, length] u8; lines dense, at multiples of 16 bytes. From the end of a line to the next
  // multiple of 16 there are zeros, for GEMMs that need such lengths.
  View codes;
  View scales;  // [ceil(length / kFp8Block), lines] f32; row stride: a multiple of kFp8Block
  Fp8Blocks blocks = Fp8Blocks::kLines;
  Fp8Format format = Fp8Format::kE4M3;

  bool defined() const { return codes.defined(); }
  int64_t lines() const { return codes.size(0); }
  int64_t length() const { return codes.size(1); }
};

// Throws ShapeError or DTypeError, naming op and operand, unless the layout is that of Fp8Operand.
void check_fp8_operand(const char* op, const char* name, const Fp8Operand& operand);

// Layout of an Fp8Operand of `lines` x `length` numbers. fp8_codes_stride(): elements from one line
// of the codes to the next. fp8_scales_stride(): elements from one row of the scales to the next.
// fp8_scale_rows(): number of rows of the scales.
constexpr int64_t fp8_codes_stride(int64_t length) {
  return (length + 15) / 16 * 16;
}
constexpr int64_t fp8_scales_stride(int64_t lines) {
  return (lines + kFp8Block - 1) / kFp8Block * kFp8Block;
}
constexpr int64_t fp8_scale_rows(int64_t length) {
  return (length + kFp8Block - 1) / kFp8Block;
}

// Quantizes x to fp8 operands: `rows` is x, `columns` is its transpose. Each x / scale is rounded
// to the format, ties to even. The scale is the smallest power of two with which the block's
// largest magnitude fits the format. The scale of a block with a non-finite number is NaN. Blocks
// at the edges may be smaller. One of the two results may be omitted; otherwise both have the same
// format and blocks. E5M2 needs kTensor. x is read once, but for kTensor twice, because its largest
// magnitude must be known before the first code.
struct QuantizeFp8Args {
  View x;                // [rows, columns] bf16, contiguous
  Fp8Operand rows{};     // operand of x, [rows, columns]
  Fp8Operand columns{};  // operand of xᵀ, [columns, rows]
};

void check_args(const QuantizeFp8Args& a);

// c = a bᵀ + bias + residual, or c += a bᵀ with `accumulate`; rounded once. Products are summed
// over kFp8Block of K, scaled, and added in f32. b is E4M3; an E5M2 a needs a b with blocks other
// than kLines. Throws UnavailableError where why_no_fp8() returns a reason, or if the GPU needs
// cuBLASLt and it cannot be loaded, also for empty operands. cuBLASLt adds up all of K before it
// scales, and its c has lines at multiples of 16 bytes.
struct Fp8GemmArgs {
  Fp8Operand a;             // [M, K]; its blocks are not kSquares
  Fp8Operand b;             // [N, K]
  View c;                   // [M, N] bf16 or f32, row-major with any row stride
  bool accumulate = false;  // allowed only without bias and residual
  View bias{};              // [N] bf16; optional
  View residual{};          // [M, N], like c; optional
};

void check_args(const Fp8GemmArgs& a);

// Returns the same GEMM with dense bf16 operands: a [M, K] and b [N, K], which may be null.
GemmArgs bf16_product(const Fp8GemmArgs& args, bf16* a, bf16* b);

// First compute capability with fp8 tensor cores.
inline constexpr int kFirstWithFp8 = 89;

// Returns why a device has no fp8 GEMMs with these scales: "scales of blocks need ..."; empty if it
// has them. CPUs and compute capability 9.0 have kernels for all scales. Later GPUs, and 8.9, have
// those of cuBLASLt for kTensor.
std::string why_no_fp8(const Device& device, Fp8Blocks blocks);

// Returns the number that must divide N on a device: 1 for Shale's own kernels, else 16.
int64_t fp8_lines_unit(const Device& device);

// Throws UnavailableError if fp8 GEMMs cannot run with these blocks of a: kLines or kTensor.
void check_fp8_gemm(const Exec& exec, Fp8Blocks blocks);

inline Slot<QuantizeFp8Args> quantize_fp8{"quantize_fp8"};
inline Slot<Fp8GemmArgs> fp8_gemm{"fp8_gemm"};

}  // namespace shale::kernels
