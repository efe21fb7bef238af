#pragma once

#include "shale/base/view.h"
#include "shale/kernels/slot.h"

namespace shale::kernels {

// y[r, c] = exp(x[r, c] - max over c) / the sum of that over c, or its logarithm. In f32, rounded
// once. A row whose largest element is -inf, inf or NaN is NaN.
struct SoftmaxFwdArgs {
  View x;  // [rows, C] f32, bf16 or f16, contiguous
  View y;  // like x; may be x
  bool log = false;
};

// dx = y (dy - sum of dy y), or with log dy - exp(y) sum of dy.
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
