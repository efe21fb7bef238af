#pragma once

#include "shale/base/view.h"
#include "shale/kernels/fixed_sum.h"
#include "shale/kernels/slot.h"

namespace shale::kernels {

// The elementwise parts of Muon (Jordan et al. 2024, kellerjordan.github.io/posts/muon); its
// matmuls are gemm calls (runtime/optim/newton_schulz.h). The bits of an element do not depend on
// where spans begin and end; g = clip_factor * grad.

// m = beta m + (1 - beta) g; update = nesterov ? (1 - beta) g + beta m : m, rounded to nearest. If
// non_finite is set, m is unchanged and the update is zero.
struct MuonMomentumArgs {
  View grad;    // [n] f32 or bf16
  View m;       // [n] f32: momentum
  View update;  // [n] bf16
  float beta = 0.95f;
  bool nesterov = true;
};

// y = 1 / (sqrt(sum) + eps); 0 if the sum is not finite.
struct InverseNormArgs {
  const FixedSum* sum = nullptr;  // device memory
  View y;                         // scalar f32
  float eps = 1e-7f;
};

// w -= lr * lr_factor * (scale * update + weight_decay * w). Writes nothing if non_finite is set.
struct MuonArgs {
  View master;   // [n] f32
  View update;   // [n] bf16
  View param{};  // [n] bf16 or f16: receives the rounded master; optional
  float lr_factor = 1;
  float scale = 1;
  float weight_decay = 0;
};

void check_args(const MuonMomentumArgs& a);
void check_args(const InverseNormArgs& a);
void check_args(const MuonArgs& a);

inline Slot<MuonMomentumArgs> muon_momentum{"muon_momentum"};
inline Slot<InverseNormArgs> inverse_norm{"inverse_norm"};
inline Slot<MuonArgs> muon{"muon"};

}  // namespace shale::kernels
