#pragma once

#include "kernels/slot.h"
#include "runtime/base/view.h"

namespace shale::kernels {

// One optimizer step over a contiguous span of a parameter; elementwise, so that the bits of an
// element do not depend on where spans begin and end. Learning rate, bias corrections and clip
// factor come from exec.step; nothing is written when exec.step->non_finite is set.
//
// AdamW (arXiv:1711.05101, algorithm 2), g = clip_factor * grad:
//   m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g²
//   w -= lr * lr_factor * ((m / bias_correction1) / (sqrt(v / bias_correction2) + eps) +
//   weight_decay * w)
struct AdamWArgs {
  View master;   // [n] f32
  View grad;     // [n] f32 or bf16
  View m;        // [n] f32
  View v;        // [n] f32
  View param{};  // [n] bf16 or f16: receives the rounded master; optional
  float lr_factor = 1;
  float beta1 = 0.9f;
  float beta2 = 0.95f;
  float eps = 1e-8f;
  float weight_decay = 0;
};

// SGD: g = clip_factor * grad + weight_decay * w;  m = momentum * m + g;  w -= lr * lr_factor * m.
// Without m: w -= lr * lr_factor * g.
struct SgdArgs {
  View master;   // [n] f32
  View grad;     // [n] f32 or bf16
  View m{};      // [n] f32; optional
  View param{};  // [n] bf16 or f16; optional
  float lr_factor = 1;
  float momentum = 0;
  float weight_decay = 0;
};

inline Slot<AdamWArgs> adamw{"adamw"};
inline Slot<SgdArgs> sgd{"sgd"};

}  // namespace shale::kernels
