#pragma once

#include <cstdint>

namespace shale::kernels {

// Angle of a position, as a part of a turn in units of 2^-32. `turns` is the angle per position, in
// units of 2^-64. Whole turns are dropped.
constexpr uint32_t rope_angle(uint64_t position, uint64_t turns) {
  return static_cast<uint32_t>((position * turns + (uint64_t{1} << 31)) >> 32);
}

// sin and cos of x in [-π/4, π/4], z = x²:
//   sin x = x + x z (s0 + z (s1 + z s2)),  cos x = 1 - z / 2 + z² (c0 + z (c1 + z c2))
// with the coefficients of Cephes' sinf and cosf (Moshier, "Methods and Programs for Mathematical
// Functions", 1989): within one unit in the last place of f32, when evaluated with FMAs from the
// inside out.
struct RopePolynomial {
  static constexpr float kSin0 = -1.6666654611e-1f, kSin1 = 8.3321608736e-3f,
                         kSin2 = -1.9515295891e-4f;
  static constexpr float kCos0 = 4.166664568298827e-2f, kCos1 = -1.388731625493765e-3f,
                         kCos2 = 2.443315711809948e-5f;
  static constexpr float kRadians = 0x1.921fb6p-30f;  // radians per unit of the angle: 2π / 2^32
};

}  // namespace shale::kernels
