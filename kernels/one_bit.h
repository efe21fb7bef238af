#pragma once

#include "shale/base/view.h"
#include "shale/kernels/slot.h"

namespace shale::kernels {

// Vectors at one bit an element, with error feedback (arXiv:2102.02888, section 3): a block of
// kSignBlock elements u is packed as its signs and one scale, the mean of its |u|. What is left
// out, u - scale * sign, is owed, and added the next time.
//
// A packed block is kSignWords words: the scale, an f32; then bit l of word 1 + k says that element
// 32 k + l is 0 or above. An element whose mask is exactly 0 counts as 0, owes nothing and is
// unpacked as 0, which a sign cannot say; so does what a vector lacks of its last block. Sums have
// one order, the same on every device: lane l of 32 adds elements l, l + 32, ..., and lanes are
// joined as a butterfly. Nothing is written when exec.step->non_finite is set.
inline constexpr int64_t kSignBlock = 1024;
inline constexpr int64_t kSignWords = 1 + kSignBlock / 32;

constexpr int64_t sign_blocks(int64_t elements) {
  return (elements + kSignBlock - 1) / kSignBlock;
}

// packs u = value_factor * value + grad_factor * (clip_factor * grad) + owed; owed = what it lacks.
struct SignPackArgs {
  View value;   // [n] f32
  View grad{};  // [n] f32 or bf16; optional
  View mask;    // [n] f32
  View owed;    // [n] f32
  View packed;  // [sign_blocks(n), kSignWords] i32
  float value_factor = 1;
  float grad_factor = 0;
};

// packs u = mean of the parts + owed, the parts added in order; owed = what it lacks.
struct SignMeanArgs {
  View parts;   // [parts, sign_blocks(n), kSignWords] i32; each dense, at any distance
  View mask;    // [n] f32
  View owed;    // [n] f32
  View packed;  // [sign_blocks(n), kSignWords] i32
};

// value = scale * sign.
struct SignUnpackArgs {
  View packed;  // [sign_blocks(n), kSignWords] i32
  View mask;    // [n] f32
  View value;   // [n] f32
};

void check_args(const SignPackArgs& a);
void check_args(const SignMeanArgs& a);
void check_args(const SignUnpackArgs& a);

inline Slot<SignPackArgs> sign_pack{"sign_pack"};
inline Slot<SignMeanArgs> sign_mean{"sign_mean"};
inline Slot<SignUnpackArgs> sign_unpack{"sign_unpack"};

}  // namespace shale::kernels
