#pragma once

#include <bit>
#include <cstdint>

#include "shale/base/view.h"
#include "shale/kernels/slot.h"

namespace shale::kernels {

// E4M3 (Micikevicius et al., arXiv:2209.05433, table 1): a sign, 4 bits of exponent with bias 7, 3
// of mantissa; no infinity, the largest number is 448.
inline constexpr int64_t kFp8Block = 128;

// The nearest number of E4M3, ties to even, of one whose magnitude is at most 448: x is rounded to
// a multiple of 1/8 of its power of two, which is at least the smallest normal one, 2^-6.
constexpr float round_to_e4m3(float x) {
  constexpr float kSmallestNormal = 0x1p-6f;
  const float magnitude = x < 0 ? -x : x;
  const float large = magnitude > kSmallestNormal ? magnitude : kSmallestNormal;
  const float power = std::bit_cast<float>(std::bit_cast<uint32_t>(large) & 0x7f800000u);
  const float shift = power * 0x1.8p20f;  // has 23 bits below its first: the last is power / 8
  return (x + shift) - shift;
}

// The exponent k of the scale 2^k of numbers whose largest magnitude has these bits, finite: the
// smallest with magnitude / 2^k <= 448, and at least -100. It is above 128 of what is not finite.
// Powers of two, as Transformer Engine rounds its scales of blocks to, make rounded numbers exact
// in bf16.
constexpr int32_t e4m3_exponent(uint32_t magnitude_bits) {
  if (magnitude_bits >= 0x7f800000u) return 255;
  // 448 is 1.75 * 2^8: a larger mantissa carries into the exponent.
  const int32_t k = static_cast<int32_t>((magnitude_bits + 0x1fffffu) >> 23) - 127 - 8;
  return k < -100 ? -100 : k;
}
constexpr float power_of_two(int32_t k) {  // of -126 to 127; else NaN
  return std::bit_cast<float>(k > 127 ? 0x7fc00000u : static_cast<uint32_t>(k + 127) << 23);
}

// y = what x is as codes of E4M3 with a scale for each block_rows x block_columns: of each number
// x / scale is rounded to E4M3 and multiplied with the scale (DeepSeek-V3, arXiv:2412.19437,
// section 3.3.2, but for scales that are powers of two). A block with a number that is not finite
// is NaN. Blocks at the edges may be smaller.
struct RoundToFp8Args {
  View x;  // [rows, columns] f32 or bf16, contiguous
  View y;  // like x, not x itself
  int64_t block_rows = 1, block_columns = kFp8Block;  // 1 or kFp8Block each, not both 1
};

void check_args(const RoundToFp8Args& a);

inline Slot<RoundToFp8Args> round_to_fp8{"round_to_fp8"};

}  // namespace shale::kernels
