#pragma once

#include "shale/base/view.h"
#include "shale/kernels/slot.h"

namespace shale::kernels {

// Adafactor (arXiv:1804.04235, algorithms 4 and 5) in several kernels. Each kernel handles a part
// of a parameter, and ranks can add up their results between two kernels. A matrix parameter [rows,
// cols] has no second moment. Instead it has the mean of the squared gradient of each row (r below)
// and of each column (c below). In the formulas, g = clip_factor * grad. gamma, the weight of the
// newest gradient in the means, is step->bias_correction2. If step->non_finite is set, means,
// moments and parameters do not change.

// A contiguous range of a parameter: elements [first, first + count) in row-major order.
struct MatrixRange {
  int64_t rows = 1;
  int64_t cols = 1;
  int64_t first = 0;
};

// Adds the mean squares of `part`, a range of the matrix, to the means of its rows and columns:
//
// row_mean[i] += sum over j of (g_ij² + eps) / cols; col_mean[j] += sum over i of (g_ij² + eps) /
// rows.
//
// The order of addition depends only on `part`.
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

// Adds up the squares of the update before clipping, u_ij = g_ij / sqrt(r_i c_j / mean(r)), over
// the elements of `part`. Adds the result to `sum`.
//
// A parameter that is not a matrix has a second moment v instead of r and c. The kernel also
// updates it, v = (1 - gamma) v + gamma (g² + eps), and u = g / sqrt(v).
struct AdafactorSquaresArgs {
  View grad;   // [count] f32 or bf16
  View row{};  // [rows] f32; undefined for a non-matrix
  View col{};  // [cols] f32
  View v{};    // [count] f32, for a non-matrix
  View sum;    // scalar f32
  MatrixRange part{};
  float eps = 1e-30f;
};

// Updates the weights w: w -= lr * lr_factor * (u / max(1, rms / clip_rms) + weight_decay * w),
// where u is the update of AdafactorSquaresArgs and rms² = square_sum / number of elements of the
// parameter.
struct AdafactorArgs {
  View master;  // [count] f32
  View grad;    // [count] f32 or bf16
  View row{};   // second moments: row, col and v of AdafactorSquaresArgs
  View col{};
  View v{};
  View square_sum;  // scalar f32: sum of the squares of u over the whole parameter
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
