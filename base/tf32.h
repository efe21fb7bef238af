#pragma once

#include <bit>
#include <cstdint>

namespace shale {

// Rounds to the nearest tf32 number (f32's exponent range, 10 bits of mantissa); ties away from
// zero, as the PTX instruction cvt.rna.tf32.f32 does. Infinities and NaN are unchanged.
inline float round_to_tf32(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const bool is_finite = (bits & 0x7f800000u) != 0x7f800000u;
  return std::bit_cast<float>(is_finite ? (bits + 0x1000u) & 0xffffe000u : bits);
}

}  // namespace shale
