#pragma once

#include "shale/base/view.h"
#include "shale/kernels/slot.h"

namespace shale::kernels {

// 1-bit compression with error feedback (arXiv:2102.02888, section 3). A block of kSignBlock
// elements u is packed as signs and one scale, the mean of |u|. The error, u - scale * sign, is
// kept in `owed` and added to u at the next packing.
//
// A packed block has kSignWords words. Word 0 is the scale, an f32. Bit l of word 1 + k is set if
// element 32 k + l is not negative. If the mask of an element is exactly 0, the element does not
// count in the mean and has no error. It is unpacked as 0, which a sign cannot encode. Missing
// elements of a short last block are treated like masked ones. Sums have a fixed order on all
// devices: lane l of 32 adds elements l, l + 32, ..., and lanes are added as a butterfly. Nothing
// is written when exec.step->non_finite is set.
inline constexpr int64_t kSignBlock = 1024;
inline constexpr int64_t kSignWords = 1 + kSignBlock / 32;

constexpr int64_t sign_blocks(int64_t elements) {
  return (elements + kSignBlock - 1) / kSignBlock;
}

// Packs u = value_factor * value + grad_factor * (clip_factor * grad) + owed, and sets owed to the
// error.
struct SignPackArgs {
  View value;   // [n] f32
  View grad{};  // [n] f32 or bf16; optional
  View mask;    // [n] f32: 0 for masked elements
  View owed;    // [n] f32: error of the last packing; updated
  View packed;  // [sign_blocks(n), kSignWords] i32: scale and signs of each block
  float value_factor = 1;
  float grad_factor = 0;
};

// Packs u = mean of the parts + owed, and sets owed to the error. The parts are added in order.
struct SignMeanArgs {
  View parts;  // [parts, sign_blocks(n), kSignWords] i32; each part dense, any stride between parts
  View mask;   // [n] f32: 0 for masked elements
  View owed;    // [n] f32: error of the last packing; updated
  View packed;  // [sign_blocks(n), kSignWords] i32: scale and signs of each block
};

// value = scale * sign; 0 for masked elements.
struct SignUnpackArgs {
  View packed;  // [sign_blocks(n), kSignWords] i32: scale and signs of each block
  View mask;    // [n] f32: 0 for masked elements
  View value;   // [n] f32
};

void check_args(const SignPackArgs& a);
void check_args(const SignMeanArgs& a);
void check_args(const SignUnpackArgs& a);

inline Slot<SignPackArgs> sign_pack{"sign_pack"};
inline Slot<SignMeanArgs> sign_mean{"sign_mean"};
inline Slot<SignUnpackArgs> sign_unpack{"sign_unpack"};

}  // namespace shale::kernels
