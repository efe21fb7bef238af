#pragma once

#include "shale/base/view.h"
#include "shale/kernels/slot.h"

namespace shale::kernels {

// Batch norm (arXiv:1502.03167, algorithm 1) of the channels C over all rows, in steps, so that
// between them moments may be exchanged with other ranks: the moments of the rows, their merging,
// the normalisation; backward, the sums over the rows, and the gradient of x. x, residual, y, gain,
// bias and their gradients: f32, bf16 or f16, alike; rows are contiguous.

// The moments of rows, channel by channel, as one vector that ranks can gather: [2 C + 1] f32 of C
// means, C sums of the squared deviations from them, and the number of rows. Without rows all are
// 0.
struct BatchMomentsArgs {
  View x;        // [rows, C]
  View moments;  // [2 C + 1] f32
};

// Merges the moments of several sets of rows, added in their order (Chan, Golub and LeVeque,
// "Updating formulae and a pairwise algorithm for computing sample variances", 1979), and moves
// the running statistics by them:
//   running = (1 - momentum) running + momentum new, of the variance with count - 1 as its divisor
// With a single row the running variance stays as it is.
struct BatchMergeArgs {
  View moments;             // [sets, 2 C + 1] f32
  View mean;                // [C] f32
  View rstd;                // [C] f32: 1 / sqrt(var + eps), of the variance with count as divisor
  View count;               // [1] f32: rows of all sets
  View running_mean{};      // [C] f32; optional
  View running_variance{};  // [C] f32; with running_mean
  float eps = 1e-5f;
  float momentum = 0.1f;
};

// y = (x - mean) rstd gain + bias + residual, and with relu the positive part of that.
struct BatchNormArgs {
  View x;           // [rows, C]
  View mean;        // [C] f32
  View rstd;        // [C] f32
  View gain;        // [C]
  View bias;        // [C]
  View residual{};  // [rows, C]; optional
  bool relu = false;
  View y;  // [rows, C]
};

// With g = dy, but 0 where relu gave 0, and n = (x - mean) rstd: the sums over rows of g and of
// g n. They are the gradients of bias and gain too, rounded once, added to what is there with
// accumulate.
struct BatchNormSumsArgs {
  View dy;       // [rows, C]
  View x;        // [rows, C]
  View y{};      // [rows, C]: with relu alone
  View mean;     // [C] f32
  View rstd;     // [C] f32
  View sums;     // [2, C] f32: of g, of g n
  View dgain{};  // [C] f32 or bf16; optional
  View dbias{};  // [C] f32 or bf16; optional
  bool accumulate_dgain = false;
  bool accumulate_dbias = false;
};

// dx = gain rstd (g - (sum of g + n sum of g n) / count); without sums, of fixed statistics,
// gain rstd g.
struct BatchNormGradArgs {
  View dy;            // [rows, C]
  View x;             // [rows, C]
  View y{};           // [rows, C]: with relu alone
  View mean;          // [C] f32
  View rstd;          // [C] f32
  View gain;          // [C]
  View sums{};        // [2, C] f32, over all sets of rows; optional
  View count{};       // [1] f32; with sums
  View dx;            // [rows, C]
  View d_residual{};  // [rows, C]: receives g; optional
};

void check_args(const BatchMomentsArgs& a);
void check_args(const BatchMergeArgs& a);
void check_args(const BatchNormArgs& a);
void check_args(const BatchNormSumsArgs& a);
void check_args(const BatchNormGradArgs& a);

inline Slot<BatchMomentsArgs> batch_moments{"batch_moments"};
inline Slot<BatchMergeArgs> batch_merge{"batch_merge"};
inline Slot<BatchNormArgs> batch_norm{"batch_norm"};
inline Slot<BatchNormSumsArgs> batch_norm_sums{"batch_norm_sums"};
inline Slot<BatchNormGradArgs> batch_norm_grad{"batch_norm_grad"};

}  // namespace shale::kernels
