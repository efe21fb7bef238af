#pragma once

#include "shale/base/view.h"
#include "shale/kernels/slot.h"

namespace shale::kernels {

// What 0/1 Adam (arXiv:2202.06009, algorithm 1) does to a span between its exchanges. By element,
// with g = grad_factor * clip_factor * grad, or grad itself without `clips`, and
//   a(u) = lr_factor * u / (sqrt(v / v_weight) + eps), which is 0 where v is exactly 0:
//
// kShared, a step that all replicas take alike:
//   m = b1 m + (1 - b1) g;  with updates_v: v = b2 v + (1 - b2) g²
//   w -= a(lr m / bias_correction1) + lr * lr_factor * weight_decay * w
// kLocal, one that each takes by itself; where v is 0, m is 0:
//   m = b1 m + (1 - b1) g;  sum += lr m / bias_correction1
//   anchor -= lr * lr_factor * weight_decay * anchor;  w = anchor - a(sum)
// kJoin, after `sum` has become its mean over the replicas: what they have alike again:
//   anchor -= a(sum);  w = anchor;  m = bias_correction1 * sum / rates;  sum = 0
// kPlace, of what is in memory: w = anchor - a(sum), the bits that kLocal and kJoin leave.
//
// Once per kWeightBlock elements: v_weight, what all gradients in v weigh together, is updated as v
// of gradients of 1; `rates` is the sum of lr since the last kJoin, which sets it to 0. A kJoin
// with rates of 0 only sets w. Nothing but by kPlace is written when exec.step->non_finite is set.
// A span begins at a multiple of kWeightBlock elements of its buffers.
inline constexpr int64_t kWeightBlock = 256;
enum class ZeroOneStep : uint8_t { kShared, kLocal, kJoin, kPlace };
struct ZeroOneAdamArgs {
  ZeroOneStep step = ZeroOneStep::kShared;
  View master;    // [n] f32
  View grad{};    // [n] f32 or bf16; of kShared and kLocal
  View m;         // [n] f32
  View v;         // [n] f32
  View v_weight;  // [ceil(n / kWeightBlock)] f32
  View anchor{};  // [n] f32; not of kShared, as the next two
  View sum{};     // [n] f32
  View rates{};   // like v_weight
  View param{};   // [n] bf16 or f16: receives the rounded master; optional
  bool updates_v = false;
  bool clips = true;
  float grad_factor = 1;
  float lr_factor = 1;
  float beta1 = 0.9f;
  float beta2 = 0.95f;
  float eps = 1e-8f;
  float weight_decay = 0;
};

void check_args(const ZeroOneAdamArgs& a);

inline Slot<ZeroOneAdamArgs> zero_one_adam{"zero_one_adam"};

}  // namespace shale::kernels
