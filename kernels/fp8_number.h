#pragma once

#include <bit>
#include <cstdint>

namespace shale::kernels {

// fp8 numbers, for storage only (Micikevicius et al., arXiv:2209.05433, table 1): sign, exponent,
// mantissa. The largest is 1.75 * 2^kTop. E4M3 has no infinity; E5M2 is the upper half of an f16.
struct e4m3 {
  static constexpr int kMantissaBits = 3, kBias = 7, kTop = 8;
  uint8_t bits = 0;
};
struct e5m2 {
  static constexpr int kMantissaBits = 2, kBias = 15, kTop = 15;
  uint8_t bits = 0;
};
inline constexpr uint32_t kFp8Nan = 0x7f;  // code of NaN in both formats

// Returns the nearest fp8 number, ties to even, of a number in the format's range: x is rounded to
// a multiple of the last mantissa bit at its exponent, or at the smallest normal exponent.
template <typename Number>
constexpr float round_to_fp8(float x) {
  constexpr float kSmallestNormal = std::bit_cast<float>(uint32_t{128 - Number::kBias} << 23);
  constexpr auto kShift = static_cast<float>(3 << (22 - Number::kMantissaBits));
  const float magnitude = x < 0 ? -x : x;
  const float large = magnitude > kSmallestNormal ? magnitude : kSmallestNormal;
  const float power = std::bit_cast<float>(std::bit_cast<uint32_t>(large) & 0x7f800000u);
  const float shift = power * kShift;  // x + shift has no more mantissa bits than the format
  return (x + shift) - shift;
}

// Returns the code of round_to_fp8(x), or kFp8Nan if x is not finite.
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
  const uint32_t sign = std::bit_cast<uint32_t>(unrounded) >> 24 & 0x80u;  // also set for a zero x
  return static_cast<uint8_t>((code < kFp8Nan ? code : kFp8Nan) | sign);
}

constexpr float decoded(e4m3 x) {  // the conversion is exact
  const uint32_t magnitude = x.bits & 0x7fu, sign = static_cast<uint32_t>(x.bits & 0x80u) << 24;
  if (magnitude == kFp8Nan) return std::bit_cast<float>(sign | 0x7fc00000u);
  const float subnormal = static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-9f;
  const uint32_t normal = (magnitude << 20) + (120u << 23);
  return std::bit_cast<float>(sign | (magnitude < 8 ? std::bit_cast<uint32_t>(subnormal) : normal));
}
constexpr float decoded(e5m2 x) {
  const uint32_t magnitude = x.bits & 0x7fu, sign = static_cast<uint32_t>(x.bits & 0x80u) << 24;
  if (magnitude >= 0x7c) {  // codes of infinity or NaN
    return std::bit_cast<float>(sign | 0x7f800000u | (magnitude > 0x7c ? 0x400000u : 0u));
  }
  const float subnormal = static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-16f;
  const uint32_t normal = (magnitude << 21) + (112u << 23);
  return std::bit_cast<float>(sign | (magnitude < 4 ? std::bit_cast<uint32_t>(subnormal) : normal));
}

// Returns the exponent k of the scale 2^k for numbers whose largest magnitude has these f32 bits:
// the smallest k for which it fits the format, and at least -100. For a non-finite magnitude k is
// above 128. Powers of two, as in Transformer Engine's block scaling, keep rounded numbers exact in
// bf16.
template <typename Number>
constexpr int32_t fp8_exponent(uint32_t magnitude_bits) {
  if (magnitude_bits >= 0x7f800000u) return 255;
  // A mantissa above 1.75 carries into the exponent.
  const int32_t k = static_cast<int32_t>((magnitude_bits + 0x1fffffu) >> 23) - 127 - Number::kTop;
  return k < -100 ? -100 : k;
}
constexpr float power_of_two(int32_t k) {  // for k in [-126, 127]; NaN for larger k
  return std::bit_cast<float>(k > 127 ? 0x7fc00000u : static_cast<uint32_t>(k + 127) << 23);
}

// Returns the factor 2^-k that quantizes with the scale 2^k; NaN if the scale is NaN.
constexpr float inverse_power_of_two(int32_t k) {
  return power_of_two(k > 127 ? k : -k);
}

}  // namespace shale::kernels
