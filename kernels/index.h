#pragma once

#include "shale/base/view.h"
#include "shale/kernels/slot.h"

namespace shale::kernels {

// y[o, k, i] = x[o, index[o, k, i], i]. An index out of range throws DataError on the CPU. Other
// devices cannot check it without synchronising and write NaN to its element of y.
struct GatherArgs {
  View x;      // [outer, N, inner] f32, bf16 or f16, contiguous
  View index;  // [outer, K, inner] i32, any strides
  View y;      // [outer, K, inner], like x
};

// y[o, index[o, k, i], i] += x[o, k, i], or with `replace` = x[o, k, i], in order of k, so results
// are the same on every run. An index out of range throws DataError on the CPU and is skipped
// elsewhere. On GPUs one thread processes all k of one (o, i), so a small outer * inner leaves most
// of the GPU idle.
struct ScatterAddArgs {
  View x;      // [outer, K, inner] f32, bf16 or f16, contiguous
  View index;  // like x, i32, any strides
  View y;      // [outer, N, inner] f32, contiguous
  bool replace = false;
};

void check_args(const GatherArgs& a);
void check_args(const ScatterAddArgs& a);

inline Slot<GatherArgs> gather{"gather"};
inline Slot<ScatterAddArgs> scatter_add{"scatter_add"};

}  // namespace shale::kernels
