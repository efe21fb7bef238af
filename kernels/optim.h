#pragma once

#include "shale/base/view.h"
#include "shale/kernels/slot.h"

namespace shale::kernels {

// One optimizer step over a contiguous span of a parameter. It is elementwise, so the bits of an
// element do not depend on where spans begin and end. Learning rate, bias corrections and clip
// factor come from exec.step; nothing is written when exec.step->non_finite is set.
//
// AdamW (arXiv:1711.05101, algorithm 2), g = clip_factor * grad:
//   m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g²
//   w -= lr * lr_factor * ((m / bias_correction1) / (sqrt(v / bias_correction2) + eps) +
//   weight_decay * w)
//
// Without masters, `master` is the bf16 parameter itself and its new value is rounded
// stochastically, so that changes below half an ulp count on average (arXiv:2010.06192, section 3).
// Element e = rounding.first + i takes word e % 4 of Philox with key rng_key(seed, kRounding) and
// counter (e / 4, step, stream low, stream high), with seed and step from exec.step; the word's low
// half is added below the bits that are kept. So the bits of an element depend neither on the span
// nor on the device.
struct StochasticRounding {
  uint64_t stream = 0;  // random stream: hash_name of the parameter's name
  int64_t first = 0;    // index of master[0] in the parameter, which has at most 2^34 elements
};

struct AdamWArgs {
  View master;   // [n] f32; or bf16, then without param
  View grad;     // [n] f32 or bf16
  View m;        // [n] f32 or bf16, rounded to nearest
  View v;        // [n] like m
  View param{};  // [n] bf16 or f16: receives the rounded master; optional
  float lr_factor = 1;
  float beta1 = 0.9f;
  float beta2 = 0.95f;
  float eps = 1e-8f;
  float weight_decay = 0;
  StochasticRounding rounding{};  // used only if master is bf16
};

// AdamW with 8-bit moments, quantized per block (arXiv:2110.02861, section 2). A code stands for a
// level of kernels/dynamic_map.h, signed for m and unsigned for v. kMomentBlock elements share a
// scale, the largest magnitude among them. The step itself uses the new moments before they are
// rounded.
//
// A v above zero never rounds to zero. Otherwise an element with neighbours that are a thousand
// times larger would take a step as if it had no second moment. Codes and scales of zero stand for
// moments of zero. A span must begin at a multiple of kMomentBlock elements of its buffers. Blocks
// are short, so that matrix rows consist of whole blocks, even when they are sharded.
inline constexpr int64_t kMomentBlock = 64;
struct AdamW8bitArgs {
  View master;   // [n] f32
  View grad;     // [n] f32 or bf16
  View m;        // [n] u8: codes of the first moment
  View v;        // [n] u8: codes of the second moment
  View m_scale;  // [ceil(n / kMomentBlock)] f32: scale of each block of m
  View v_scale;  // [ceil(n / kMomentBlock)] f32: scale of each block of v
  View param{};  // [n] bf16 or f16; optional
  float lr_factor = 1;
  float beta1 = 0.9f;
  float beta2 = 0.95f;
  float eps = 1e-8f;
  float weight_decay = 0;
};

// Lion (arXiv:2302.06675, program 1), g = clip_factor * grad:
//   w -= lr * lr_factor * (sign(b1 m + (1 - b1) g) + weight_decay * w);  m = b2 m + (1 - b2) g
struct LionArgs {
  View master;   // [n] f32
  View grad;     // [n] f32 or bf16
  View m;        // [n] f32 or bf16, rounded to nearest
  View param{};  // [n] bf16 or f16; optional
  float lr_factor = 1;
  float beta1 = 0.9f;
  float beta2 = 0.99f;
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

// Exponential moving average of weights: average += share * (master - average).
struct WeightAverageArgs {
  View master;      // [n] f32
  View average;     // [n] f32
  float share = 0;  // 1 - decay
};

void check_args(const AdamWArgs& a);
void check_args(const AdamW8bitArgs& a);
void check_args(const LionArgs& a);
void check_args(const SgdArgs& a);
void check_args(const WeightAverageArgs& a);

inline Slot<AdamWArgs> adamw{"adamw"};
inline Slot<AdamW8bitArgs> adamw_8bit{"adamw_8bit"};
inline Slot<LionArgs> lion{"lion"};
inline Slot<SgdArgs> sgd{"sgd"};
inline Slot<WeightAverageArgs> weight_average{"weight_average"};

}  // namespace shale::kernels
