#pragma once

#include <bit>
#include <cstdint>

namespace shale::kernels {

// Numbers of 8 bits, as storage (Micikevicius et al., arXiv:2209.05433, table 1): a sign; of E4M3 4
// bits of exponent with bias 7 and 3 of mantissa, no infinity, at most 448; of E5M2 5 with bias 15
// and 2, which is the upper half of an f16.
struct e4m3 {
  uint8_t bits = 0;
};
struct e5m2 {
  uint8_t bits = 0;
};

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

// The code of a number that round_to_e4m3() has made; that of NaN of what is not finite.
constexpr uint8_t e4m3_code(float x) {
  constexpr uint32_t kSmallestNormal = 0x3c800000u, kNan = 0x7f;
  const uint32_t bits = std::bit_cast<uint32_t>(x), magnitude = bits & 0x7fffffffu;
  // Exponents are 120 above E4M3's; subnormal numbers are multiples of 2^-9.
  const uint32_t normal = (magnitude >> 20) - (120u << 3);
  const bool is_normal = magnitude >= kSmallestNormal;
  const float small = std::bit_cast<float>(is_normal ? kSmallestNormal : magnitude);
  const auto subnormal = static_cast<uint32_t>(static_cast<int32_t>(small * 0x1p9f));
  const uint32_t code = is_normal ? normal : subnormal;
  return static_cast<uint8_t>((code < kNan ? code : kNan) | (bits >> 24 & 0x80u));
}

constexpr float decoded(e4m3 x) {  // exact
  const uint32_t magnitude = x.bits & 0x7fu, sign = static_cast<uint32_t>(x.bits & 0x80u) << 24;
  if (magnitude == 0x7f) return std::bit_cast<float>(sign | 0x7fc00000u);
  const float subnormal = static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-9f;
  const uint32_t normal = (magnitude << 20) + (120u << 23);
  return std::bit_cast<float>(sign | (magnitude < 8 ? std::bit_cast<uint32_t>(subnormal) : normal));
}
constexpr float decoded(e5m2 x) {
  const uint32_t magnitude = x.bits & 0x7fu, sign = static_cast<uint32_t>(x.bits & 0x80u) << 24;
  if (magnitude >= 0x7c) {  // infinity, NaN
    return std::bit_cast<float>(sign | 0x7f800000u | (magnitude > 0x7c ? 0x400000u : 0u));
  }
  const float subnormal = static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-16f;
  const uint32_t normal = (magnitude << 21) + (112u << 23);
  return std::bit_cast<float>(sign | (magnitude < 4 ? std::bit_cast<uint32_t>(subnormal) : normal));
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
constexpr float power_of_two(int32_t k) {  // of -126 to 127; of more NaN
  return std::bit_cast<float>(k > 127 ? 0x7fc00000u : static_cast<uint32_t>(k + 127) << 23);
}

// What numbers are multiplied with for a scale 2^k; NaN where the scale is.
constexpr float inverse_power_of_two(int32_t k) {
  return power_of_two(k > 127 ? k : -k);
}

}  // namespace shale::kernels
