#pragma once

namespace shale::kernels {

// sin and cos of x in [-π/4, π/4], z = x²:
//   sin x = x + x z (s0 + z (s1 + z s2)),  cos x = 1 - z / 2 + z² (c0 + z (c1 + z c2))
// with the coefficients of Cephes' sinf and cosf (Moshier, "Methods and Programs for Mathematical
// Functions", 1989): within one unit in the last place of f32, when evaluated with FMAs from the
// inside out.
struct RopePolynomial {
  static constexpr float kSin[] = {-1.6666654611e-1f, 8.3321608736e-3f, -1.9515295891e-4f};
  static constexpr float kCos[] = {4.166664568298827e-2f, -1.388731625493765e-3f,
                                   2.443315711809948e-5f};
  // Radians of a unit: a turn has 2^32.
  static constexpr float kUnit = 0x1.921fb6p-30f;  // 2π / 2^32
};

}  // namespace shale::kernels
