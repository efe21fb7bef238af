#pragma once

#include "shale/base/view.h"
#include "shale/kernels/slot.h"

namespace shale::kernels {

// Adafactor (arXiv:1804.04235, algorithms 4 and 5), split into steps, between which ranks can add
// up their results for parts of a parameter. Instead of a second moment, a matrix parameter [rows,
// cols] has means of its squared gradient by row (r below) and by column (c below). g = clip_factor
// * grad; gamma, the weight of the newest gradient in the means, is step->bias_correction2. If
// non_finite is set, only the sums are written, as zeros.

// A contiguous range of a parameter: elements [first, first + count) in row-major order.
struct MatrixRange {
  int64_t rows = 1;
  int64_t cols = 1;
  int64_t first = 0;
};

// row_mean[i] += sum over j of (g_ij² + eps) / cols; col_mean[j] += sum over i of (g_ij² + eps) /
// rows, over the elements of the part. The order of addition depends only on the part.
struct AdafactorMeansArgs {
  View grad;      // [count] f32 or bf16
  View row_mean;  // [rows] f32
  View col_mean;  // [cols] f32
  MatrixRange part{};
  float eps = 1e-30f;
};

// mean = (1 - gamma) * mean + gamma * newest.
struct AdafactorAverageArgs {
  View newest;  // [n] f32
  View mean;    // [n] f32
};

// Adds to `sum` the squares of the update before clipping, u_ij = g_ij / sqrt(r_i c_j / mean(r)),
// over the part.
//
// Parameters that are not matrices have a second moment instead of r and c: v = (1 - gamma) v +
// gamma (g² + eps) is stored, and u = g / sqrt(v).
struct AdafactorSquaresArgs {
  View grad;   // [count] f32 or bf16
  View row{};  // [rows] f32; undefined for a non-matrix
  View col{};  // [cols] f32
  View v{};    // [count] f32, for a non-matrix
  View sum;    // scalar f32
  MatrixRange part{};
  float eps = 1e-30f;
};

// w -= lr * lr_factor * (u / max(1, rms / clip_rms) + weight_decay * w), rms² = square_sum / numel.
struct AdafactorArgs {
  View master;  // [count] f32
  View grad;    // [count] f32 or bf16
  View row{};   // row, col, v: as in AdafactorSquaresArgs
  View col{};
  View v{};
  View square_sum;  // scalar f32: sum of squares over the whole parameter
  View param{};     // [count] bf16 or f16; optional
  MatrixRange part{};
  float lr_factor = 1;
  float clip_rms = 1;
  float weight_decay = 0;
};

void check_args(const AdafactorMeansArgs& a);
void check_args(const AdafactorAverageArgs& a);
void check_args(const AdafactorSquaresArgs& a);
void check_args(const AdafactorArgs& a);

inline Slot<AdafactorMeansArgs> adafactor_means{"adafactor_means"};
inline Slot<AdafactorAverageArgs> adafactor_average{"adafactor_average"};
inline Slot<AdafactorSquaresArgs> adafactor_squares{"adafactor_squares"};
inline Slot<AdafactorArgs> adafactor{"adafactor"};

}  // namespace shale::kernels
