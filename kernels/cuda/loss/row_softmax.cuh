#pragma once

#include <cfloat>

#include "shale/base/exec.h"
#include "shale/kernels/loss.h"
#include "shale/kernels/simt/simt.h"

// One pass over a row that keeps a maximum and a sum of exponentials per thread (arXiv:1805.02867);
// used by the cross-entropies of whole and of sharded rows.

namespace shale::kernels::SHALE_BACKEND {

inline constexpr float kLog2E = 1.44269504f;

// Maximum of the row, and the sum of exp(x - max). The maximum may ignore a NaN, but the sum never
// does. The maximum does not start at -inf, because -inf minus -inf is NaN.
struct RowSoftmax {
  float max = -FLT_MAX;
  float sum = 0;
};

// e^x for x <= 0. The relative error grows with |x|, from rounding the multiplication.
__device__ __forceinline__ float exp_of(float x) {
  return fast_exp2(x * kLog2E);
}

// Adds the logits of columns [c, c + kCount), except those from vocab on.
template <int kCount>
__device__ __forceinline__ void add_logits(RowSoftmax& row, Floats<kCount> x, int c, int vocab) {
  if (c + kCount > vocab) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) x.at[i] = c + i < vocab ? x.at[i] : -INFINITY;
  }
  float top = row.max;
#pragma unroll
  for (int i = 0; i < kCount; ++i) top = fmaxf(top, x.at[i]);
  float added = 0;
#pragma unroll
  for (int i = 0; i < kCount; ++i) added += exp_of(x.at[i] - top);
  row.sum = fmaf(row.sum, exp_of(row.max - top), added);
  row.max = top;
}

__device__ __forceinline__ RowSoftmax softmax_of_block(const RowSoftmax& mine) {
  RowSoftmax row;
  row.max = block_max(mine.max);
  row.sum = block_sum(mine.sum * exp_of(mine.max - row.max));
  return row;
}

// Numbers for the gradient of a row. The row's logits already have their softcap applied.
struct RowGradient {
  float max, factor, scale;  // probability * scale is computed as exp(x - max) * factor
  float inv_sum;
  int target, vocab;
  float inverse_softcap;  // 0: no softcap
};

__device__ __forceinline__ RowGradient gradient_row(const RowSoftmax& row, const StepState* step,
                                                    int target, int vocab,
                                                    float inverse_softcap = 0) {
  const float scale = step == nullptr ? 0.f : step->grad_scale * step->loss_scale.value;
  const float inv_sum = 1.f / row.sum;
  return {.max = row.max,
          .factor = scale * inv_sum,
          .scale = scale,
          .inv_sum = inv_sum,
          .target = target,
          .vocab = vocab,
          .inverse_softcap = inverse_softcap};
}

template <bool kCapped = false, int kCount>
__device__ __forceinline__ Floats<kCount> gradient_of(Floats<kCount> x, int c,
                                                      const RowGradient& row) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const float e = exp_of(x.at[i] - row.max);
    // For the target, p - 1 is computed before scaling, so that it is rounded once where it
    // cancels.
    const float value =
        c + i == row.target ? fmaf(e, row.inv_sum, -1.f) * row.scale : e * row.factor;
    const float tanh = kCapped ? x.at[i] * row.inverse_softcap : 0.f;
    x.at[i] = c + i < row.vocab ? value * fmaf(-tanh, tanh, 1.f) : 0.f;
  }
  return x;
}

enum class RowKind { kCounts, kIgnored, kInvalid };

__device__ __forceinline__ RowKind kind_of(int target, int vocab) {
  if (target == kIgnoreTarget) return RowKind::kIgnored;
  return target >= 0 && target < vocab ? RowKind::kCounts : RowKind::kInvalid;
}

}  // namespace shale::kernels::SHALE_BACKEND
