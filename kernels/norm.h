#pragma once

#include "shale/base/view.h"
#include "shale/kernels/slot.h"

namespace shale::kernels {

// LayerNorm over the last dimension (arXiv:1607.06450, eq. 4), fused with a preceding residual
// addition:
//   s = x + residual (s = x without one);  y = (s - mean(s)) / sqrt(var(s) + eps) * gain + bias
// Rows are contiguous. x, residual, sum, y, gain and bias have one dtype: f32, bf16 or f16.
struct LayerNormFwdArgs {
  View x;           // [rows, C]
  View residual{};  // [rows, C]; optional
  View sum{};   // [rows, C]: receives s, rounded to its dtype; y is computed from the rounded s.
                // Required with a residual; may be x or residual.
  View gain;    // [C]
  View bias{};  // [C]; optional
  View y;       // [rows, C]
  View mean;    // [rows] f32
  View rstd;    // [rows] f32: 1 / sqrt(var + eps)
  float eps = 1e-5f;
};

// RMSNorm (arXiv:1910.07467, eq. 4), fused with a preceding residual addition:
//   s = x + residual (s = x without one);  y = s / sqrt(mean(s^2) + eps) * gain
// Layouts and dtypes are as in LayerNormFwdArgs.
struct RmsNormFwdArgs {
  View x;           // [rows, C]
  View residual{};  // [rows, C]; optional
  View sum{};       // [rows, C]: receives s, rounded, as in LayerNormFwdArgs
  View gain;        // [C]
  View y;           // [rows, C]
  View rstd;        // [rows] f32: 1 / sqrt(mean(s^2) + eps)
  float eps = 1e-5f;
};

// Computes dx = the gradient of s through the norm, plus d_sum, which is the gradient of s through
// other paths. dgain and dbias are f32 or bf16: summed in f32 and rounded once; with accumulate,
// added to the existing values.
struct LayerNormBwdArgs {
  View dy;       // [rows, C]
  View s;        // [rows, C]
  View gain;     // [C]
  View mean;     // [rows] f32
  View rstd;     // [rows] f32
  View d_sum{};  // [rows, C]; optional; may be dx itself
  View dx;       // [rows, C]
  View dgain{};  // [C]; optional
  View dbias{};  // [C]; optional
  bool accumulate_dgain = false;
  bool accumulate_dbias = false;
};

struct RmsNormBwdArgs {
  View dy;       // [rows, C]
  View s;        // [rows, C]
  View gain;     // [C]
  View rstd;     // [rows] f32
  View d_sum{};  // [rows, C]; optional; may be dx itself
  View dx;       // [rows, C]
  View dgain{};  // [C]; optional
  bool accumulate_dgain = false;
};

void check_args(const LayerNormFwdArgs& a);
void check_args(const LayerNormBwdArgs& a);
void check_args(const RmsNormFwdArgs& a);
void check_args(const RmsNormBwdArgs& a);

inline Slot<LayerNormFwdArgs> layer_norm_fwd{"layer_norm_fwd"};
inline Slot<LayerNormBwdArgs> layer_norm_bwd{"layer_norm_bwd"};
inline Slot<RmsNormFwdArgs> rms_norm_fwd{"rms_norm_fwd"};
inline Slot<RmsNormBwdArgs> rms_norm_bwd{"rms_norm_bwd"};

}  // namespace shale::kernels
