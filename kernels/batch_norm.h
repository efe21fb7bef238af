#pragma once

#include "shale/base/view.h"
#include "shale/kernels/slot.h"

namespace shale::kernels {

// Batch norm (arXiv:1502.03167, algorithm 1) over all rows for each of C channels, split into steps
// so that ranks can exchange moments in between. Forward: moments of the rows, merge,
// normalisation. Backward: sums over the rows, gradient of x. x, residual, y, gain, bias and their
// gradients have one dtype: f32, bf16 or f16; rows are contiguous.

// Computes the moments of the rows as one vector that ranks can gather, [2 C + 1] f32: C means, C
// sums of the squared deviations from them, and the number of rows. Without rows all are 0.
struct BatchMomentsArgs {
  View x;        // [rows, C]
  View moments;  // [2 C + 1] f32: the result
};

// Merges the moments of several sets of rows in order (Chan, Golub and LeVeque, "Updating formulae
// and a pairwise algorithm for computing sample variances", 1979), and updates the running
// statistics:
//   running = (1 - momentum) running + momentum new, with the divisor count - 1 for the variance
// With a single row the running variance does not change.
struct BatchMergeArgs {
  View moments;             // [sets, 2 C + 1] f32: results of batch_moments
  View mean;                // [C] f32
  View rstd;                // [C] f32: 1 / sqrt(var + eps), where var has the divisor count
  View count;               // [1] f32: number of rows in all sets
  View running_mean{};      // [C] f32; optional
  View running_variance{};  // [C] f32; required with running_mean
  float eps = 1e-5f;
  float momentum = 0.1f;
};

// y = (x - mean) rstd gain + bias + residual; with relu, max(y, 0).
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

// Let g = dy, or 0 where relu gave 0, and n = (x - mean) rstd. Computes the sums over rows of g and
// of g n. They are also the gradients of bias and gain, rounded once; with accumulate they are
// added to the existing values.
struct BatchNormSumsArgs {
  View dy;       // [rows, C]
  View x;        // [rows, C]
  View y{};      // [rows, C]: required with relu
  View mean;     // [C] f32
  View rstd;     // [C] f32
  View sums;     // [2, C] f32: sums of g, sums of g n
  View dgain{};  // [C] f32 or bf16; optional
  View dbias{};  // [C] f32 or bf16; optional
  bool accumulate_dgain = false;
  bool accumulate_dbias = false;
};

// Computes dx = gain rstd (g - (sum of g + n sum of g n) / count), with g and n of
// BatchNormSumsArgs. Without sums, the statistics are fixed, and dx = gain rstd g.
struct BatchNormGradArgs {
  View dy;            // [rows, C]
  View x;             // [rows, C]
  View y{};           // [rows, C]: required with relu
  View mean;          // [C] f32
  View rstd;          // [C] f32
  View gain;          // [C]
  View sums{};   // [2, C] f32: results of BatchNormSumsArgs, added over all sets of rows; optional
  View count{};  // [1] f32: number of rows in all sets; required with sums
  View dx;            // [rows, C]
  View d_residual{};  // [rows, C]: gradient of residual, receives g; optional
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
