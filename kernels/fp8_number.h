#pragma once

#include <bit>
#include <cstdint>

namespace shale::kernels {

// Numbers of 8 bits, as storage (Micikevicius et al., arXiv:2209.05433, table 1): a sign, an
// exponent, a mantissa. The largest is 1.75 * 2^kTop. E4M3 has no infinity; E5M2 is the upper half
// of an f16.
struct e4m3 {
  static constexpr int kMantissaBits = 3, kBias = 7, kTop = 8;
  uint8_t bits = 0;
};
struct e5m2 {
  static constexpr int kMantissaBits = 2, kBias = 15, kTop = 15;
  uint8_t bits = 0;
};
inline constexpr uint32_t kFp8Nan = 0x7f;  // the code of one, of both

// The nearest number, ties to even, of one whose magnitude is at most the largest: x is rounded to
// a multiple of the mantissa's last bit in its power of two, which is at least the smallest normal
// one.
template <typename Number>
constexpr float round_to_fp8(float x) {
  constexpr float kSmallestNormal = std::bit_cast<float>(uint32_t{128 - Number::kBias} << 23);
  constexpr auto kShift = static_cast<float>(3 << (22 - Number::kMantissaBits));
  const float magnitude = x < 0 ? -x : x;
  const float large = magnitude > kSmallestNormal ? magnitude : kSmallestNormal;
  const float power = std::bit_cast<float>(std::bit_cast<uint32_t>(large) & 0x7f800000u);
  const float shift = power * kShift;  // has 23 bits below its first: the last is the mantissa's
  return (x + shift) - shift;
}

// The code of the nearest number, as round_to_fp8() has it; kFp8Nan of what is not finite.
template <typename Number>
constexpr uint8_t fp8_code(float unrounded) {
  const float x = round_to_fp8<Number>(unrounded);
  constexpr int kMantissaBits = Number::kMantissaBits, kBias = Number::kBias;
  constexpr uint32_t kSmallestNormal = uint32_t{128 - kBias} << 23;
  constexpr auto kSubnormals = static_cast<float>(1 << (kBias - 1 + kMantissaBits));
  const uint32_t bits = std::bit_cast<uint32_t>(x), magnitude = bits & 0x7fffffffu;
  const uint32_t normal =
      (magnitude >> (23 - kMantissaBits)) - (uint32_t{127 - kBias} << kMantissaBits);
  const bool is_normal = magnitude >= kSmallestNormal;
  const float small = std::bit_cast<float>(is_normal ? kSmallestNormal : magnitude);
  const auto subnormal = static_cast<uint32_t>(static_cast<int32_t>(small * kSubnormals));
  const uint32_t code = is_normal ? normal : subnormal;
  const uint32_t sign = std::bit_cast<uint32_t>(unrounded) >> 24 & 0x80u;  // of a zero too
  return static_cast<uint8_t>((code < kFp8Nan ? code : kFp8Nan) | sign);
}

constexpr float decoded(e4m3 x) {  // exact
  const uint32_t magnitude = x.bits & 0x7fu, sign = static_cast<uint32_t>(x.bits & 0x80u) << 24;
  if (magnitude == kFp8Nan) return std::bit_cast<float>(sign | 0x7fc00000u);
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
// smallest that brings it to the format's largest or less, and at least -100. It is above 128 of
// what is not finite. Powers of two, as Transformer Engine rounds its scales of blocks to, make
// rounded numbers exact in bf16.
template <typename Number>
constexpr int32_t fp8_exponent(uint32_t magnitude_bits) {
  if (magnitude_bits >= 0x7f800000u) return 255;
  // A mantissa above 1.75 carries into the exponent.
  const int32_t k = static_cast<int32_t>((magnitude_bits + 0x1fffffu) >> 23) - 127 - Number::kTop;
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
