#pragma once

#include "shale/base/view.h"
#include "shale/kernels/fixed_sum.h"
#include "shale/kernels/slot.h"

namespace shale::kernels {

// y[c] = sum over rows of x[r, c], in f32, rounded once (bias gradients).
struct ColumnSumArgs {
  View x;  // [rows, C] f32, bf16 or f16; rows contiguous, any row stride
  View y;  // [C] f32 or bf16
  bool accumulate = false;
};

// y = scale * sum of x, summed in f64 by a binary tree over the elements.
struct SumArgs {
  View x;  // contiguous, f32
  View y;  // scalar f32
  double scale = 1;
};

// Adds the sum of squares of a gradient buffer to *sum. Each aligned block of kNormBlock elements
// is summed in f64 in a fixed lane order (lane l of 8 adds elements l, l + 8, ...; lanes are joined
// as ((0+1)+(2+3))+((4+5)+(6+7))); the block sums are added independently of order. So the result
// is the same for any division of the buffer at multiples of kNormBlock.
inline constexpr int64_t kNormBlock = 1024;
struct SumSquaresArgs {
  View x;                   // contiguous f32 or bf16; the last block may be short
  FixedSum* sum = nullptr;  // device memory
};

// Computes, from the sum over all ranks: step->grad_norm = factor * sqrt(sum) /
// step->loss_scale.value, step->non_finite, and step->clip_factor = min(1, max_norm / (grad_norm +
// 1e-6)) / step->loss_scale.value. max_norm 0: no clipping.
// A sum that is not finite sets non_finite to 1 and clip_factor to 0; else non_finite is 0.
struct ClipFactorArgs {
  const FixedSum* sum = nullptr;  // device memory
  int64_t parts = 1;              // number of consecutive sums, one per rank; they are added
  float max_norm = 0;
  float factor = 1;  // grad_norm is the norm of `factor` times the gradients
};

void check_args(const ColumnSumArgs& a);
void check_args(const SumArgs& a);
void check_args(const SumSquaresArgs& a);
void check_args(const ClipFactorArgs& a);

inline Slot<ColumnSumArgs> column_sum{"column_sum"};
inline Slot<SumArgs> sum{"sum"};
inline Slot<SumSquaresArgs> sum_squares{"sum_squares"};
inline Slot<ClipFactorArgs> clip_factor{"clip_factor"};

}  // namespace shale::kernels
