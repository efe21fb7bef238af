#pragma once

#include "shale/base/view.h"
#include "shale/kernels/slot.h"

namespace shale::kernels {

// y[r, c] = exp(x[r, c] - max over c), divided by its sum over c, or the logarithm of that.
// Computed in f32, rounded once. A row whose maximum is -inf, inf or NaN becomes NaN.
struct SoftmaxFwdArgs {
  View x;  // [rows, C] f32, bf16 or f16, contiguous
  View y;  // like x; may be x
  bool log = false;
};

// dx = y (dy - sum of dy y); with log, dx = dy - exp(y) sum of dy.
struct SoftmaxBwdArgs {
  View y, dy;  // like x
  View dx;     // like x; may be dy
  bool log = false;
};

void check_args(const SoftmaxFwdArgs& a);
void check_args(const SoftmaxBwdArgs& a);

inline Slot<SoftmaxFwdArgs> softmax_fwd{"softmax_fwd"};
inline Slot<SoftmaxBwdArgs> softmax_bwd{"softmax_bwd"};

}  // namespace shale::kernels
