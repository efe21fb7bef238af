#pragma once

#include <cstdint>

#include "shale/base/view.h"
#include "shale/kernels/slot.h"

namespace shale::kernels {

inline constexpr int64_t kMaxRopeHeadSize = 256;

// Rotary position embedding (Su et al., "RoFormer", arXiv:2104.09864): in each head of the token at
// position t, pair i = 0 ... D/2 - 1 is rotated by the angle t f_i:
//   y_a = scale (x_a cos - x_b sin),  y_b = scale (x_a sin + x_b cos)
// computed in f32 and rounded once.
//
// Frequencies are given as parts of a turn, f_i / 2π, in units of 2^-64. Angles are products of
// integers modulo a turn, so they are as accurate at position 2^20 as at 1. sin and cos are
// polynomials of the remainder to the nearest quarter turn (rope_angle.h), with the same bits
// on all devices.
struct RopeArgs {
  View x;  // [B, T, H, D], D even, at most kMaxRopeHeadSize; any strides but the last, which is 1
  View y;  // of x's shape and dtype, any strides but the last; may be x
  const uint64_t* turns = nullptr;  // [D / 2] in host memory; read before the call returns
  View positions{};  // [B, T] i32, at least 0; optional: if omitted, first_position + t
  int64_t first_position = 0;
  float scale = 1;
  bool interleaved = false;  // pair i is (2 i, 2 i + 1); else (i, i + D / 2)
  bool inverse = false;      // rotates back, for backward
};

void check_args(const RopeArgs& a);

inline Slot<RopeArgs> rope{"rope"};

}  // namespace shale::kernels
