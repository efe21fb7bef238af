#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <limits>

#include "shale/base/view.h"
#include "shale/kernels/slot.h"

namespace shale::kernels {

// Codes of blockwise quantized numbers. A number has a code of a few bits, and every kCodeBlock
// numbers of a row share an f32 scale. The bytes of a row are its codes, followed by its scales.
enum class BlockCode : uint8_t {
  kInt8,  // two's complement; the scale is 1 / 127 of the largest magnitude in the block
  // indices into kNf4Levels, two per byte, the first one in the upper half; the scale is the
  // largest magnitude in the block (arXiv:2305.14314, section 3)
  kNf4,
};

inline constexpr int64_t kCodeBlock = 64;

// Quantiles of the normal distribution, as in bitsandbytes (arXiv:2305.14314, appendix E).
inline constexpr std::array<float, 16> kNf4Levels = {-1.0f,
                                                     -0.6961928009986877f,
                                                     -0.5250730514526367f,
                                                     -0.39491748809814453f,
                                                     -0.28444138169288635f,
                                                     -0.18477343022823334f,
                                                     -0.09105003625154495f,
                                                     0.0f,
                                                     0.07958029955625534f,
                                                     0.16093020141124725f,
                                                     0.24611230194568634f,
                                                     0.33791524171829224f,
                                                     0.44070982933044434f,
                                                     0.5626170039176941f,
                                                     0.7229568362236023f,
                                                     1.0f};

// Bytes of a row's codes, and of a whole row with its scales, for `columns` numbers (a multiple of
// kCodeBlock).
constexpr int64_t code_bytes(BlockCode code, int64_t columns) {
  return code == BlockCode::kNf4 ? columns / 2 : columns;
}
constexpr int64_t coded_row_bytes(BlockCode code, int64_t columns) {
  return code_bytes(code, columns) + columns / kCodeBlock * int64_t{sizeof(float)};
}

// Quantizes a row in host memory to the nearest codes. Throws DataError for non-finite numbers.
void encode_row(BlockCode code, const float* row, int64_t columns, uint8_t* to);
// Reverses encode_row().
void decode_row(BlockCode code, const uint8_t* row, int64_t columns, float* to);

// Dequantizes: y = level of the code * scale of its block, in f32, rounded once.
struct DecodeBlocksArgs {
  View x;  // [rows, coded_row_bytes] u8, contiguous, at a multiple of 4 bytes
  View y;  // [rows, columns] f32, bf16 or f16, contiguous
  BlockCode code = BlockCode::kInt8;
};

// Quantizes like encode_row(), except that a block with a non-finite number becomes NaN as a whole.
struct EncodeBlocksArgs {
  View x;  // [rows, columns] f32, bf16 or f16, contiguous
  View y;  // [rows, coded_row_bytes] u8, contiguous, at a multiple of 4 bytes
  BlockCode code = BlockCode::kInt8;
};

void check_args(const DecodeBlocksArgs& a);
void check_args(const EncodeBlocksArgs& a);

inline Slot<DecodeBlocksArgs> decode_blocks{"decode_blocks"};
inline Slot<EncodeBlocksArgs> encode_blocks{"encode_blocks"};

// Factors of a block: `inverse` scales numbers before quantization, `scale` scales codes back.
struct BlockScale {
  float inverse = 0;
  float scale = 0;
};
// Returns the factors for a block with this largest magnitude, which must be finite.
constexpr BlockScale block_scale(BlockCode code, float largest) {
  constexpr float kInt8Largest = 127;
  constexpr float kMost = std::numeric_limits<float>::max();
  const float inverse = largest > 0 ? 1 / largest : 0;
  // The inverse of a tiny scale overflows; such a block is quantized to zeros.
  if (!(inverse <= kMost)) return {};
  if (code == BlockCode::kNf4) return {inverse, largest};
  const float scale = largest / kInt8Largest;
  // If the scale was rounded up, dequantizing the largest number could give infinity.
  const bool is_finite = scale * kInt8Largest <= kMost;
  const uint32_t below = std::bit_cast<uint32_t>(scale) - 1;
  return {inverse * kInt8Largest, is_finite ? scale : std::bit_cast<float>(below)};
}

}  // namespace shale::kernels
