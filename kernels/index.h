#pragma once

#include "shale/base/view.h"
#include "shale/kernels/slot.h"

namespace shale::kernels {

// y[o, k, i] = x[o, index[o, k, i], i]. An index outside of x is a DataError on the CPU; elsewhere
// it cannot be looked at without waiting, and makes its element of y NaN.
struct GatherArgs {
  View x;      // [outer, N, inner] f32, bf16 or f16, contiguous
  View index;  // [outer, K, inner] i32, any strides
  View y;      // [outer, K, inner], like x
};

// y[o, index[o, k, i], i] += x[o, k, i], in order of k: the same bits on every run. An index
// outside of y is a DataError on the CPU, and left out elsewhere. On GPUs a thread goes along the k
// of one (o, i), so that few of those leave most of the GPU idle.
struct ScatterAddArgs {
  View x;      // [outer, K, inner] f32, bf16 or f16, contiguous
  View index;  // like x, i32, any strides
  View y;      // [outer, N, inner] f32, contiguous
};

void check_args(const GatherArgs& a);
void check_args(const ScatterAddArgs& a);

inline Slot<GatherArgs> gather{"gather"};
inline Slot<ScatterAddArgs> scatter_add{"scatter_add"};

}  // namespace shale::kernels
