#pragma once

#include "shale/base/exec.h"
#include "shale/base/view.h"
#include "shale/kernels/slot.h"

namespace shale::kernels {

// Dynamic loss scaling (arXiv:1710.03740, section 3.2). After clip_factor has checked the gradient,
// updates step->loss_scale for the next step.
//   finite gradient: after growth_interval such steps in a row the scale grows, and `hysteresis`
//     overflows are tolerated again
//   overflow: the step counts as skipped (optimizers do nothing while step->non_finite is set).
//     Once `hysteresis` overflows have used up the tolerance, this and each further one lower the
//     scale. A scale of min_value stays, and step->non_finite becomes kOverflowAtMinScale.
struct LossScaleArgs {
  float growth_factor = 2;
  float backoff_factor = 0.5f;
  uint32_t growth_interval = 2000;  // steps without overflow
  uint32_t hysteresis = 1;          // overflows until the scale is lowered, at least 1
  float min_value = 1;
  float max_value = 0x1p24f;
};
inline constexpr uint32_t kOverflowAtMinScale = 2;
inline constexpr uint32_t kOutlierNorm = 3;  // step->non_finite for an outlier, see SkipOutlierArgs

// Implements update_loss_scale for all devices.
constexpr void advance_loss_scale(const LossScaleArgs& a, LossScale& state, uint32_t& non_finite) {
  if (non_finite == 0 || non_finite == kOutlierNorm) {
    if (++state.good_steps < a.growth_interval) return;
    const float grown = state.value * a.growth_factor;
    state.value = grown < a.max_value ? grown : a.max_value;
    state.good_steps = 0;
    state.tolerance = a.hysteresis;
    return;
  }
  ++state.skipped_steps;
  state.good_steps = 0;
  if (state.tolerance > 0) --state.tolerance;
  if (state.tolerance > 0) return;
  if (state.value <= a.min_value) non_finite = kOverflowAtMinScale;
  const float lowered = state.value * a.backoff_factor;
  state.value = lowered > a.min_value ? lowered : a.min_value;
}

// Called after clip_factor. Skips a step, as if it had overflowed, if its gradient norm is more
// than `sigmas` standard deviations above the mean norm of the last `window` steps:
// step->non_finite becomes kOutlierNorm (as in OLMo 2, arXiv:2501.00656). Does nothing until half
// the window is filled. Afterwards the norm replaces the oldest one, even if it is an outlier, so
// that a lasting new level becomes the usual one. A non-finite gradient changes nothing.
struct SkipOutlierArgs {
  View norms;  // [window] f32: ring buffer; the oldest is element *count % window
  View count;  // scalar i64: number of norms added so far
  double sigmas = 6;
};

// Implements skip_outliers for all devices: f64 sums in the order of the ring buffer.
constexpr void skip_outlier(float* norms, int64_t window, double sigmas, int64_t& count,
                            StepState& step) {
  if (step.non_finite != 0) return;
  const int64_t known = count < window ? count : window;
  if (known >= 2 && known >= window / 2) {
    double total = 0, squares = 0;
    for (int64_t i = 0; i < known; ++i) total += double{norms[i]};
    const double mean = total / static_cast<double>(known);
    for (int64_t i = 0; i < known; ++i) {
      const double distance = double{norms[i]} - mean;
      squares += distance * distance;
    }
    const double variance = squares / static_cast<double>(known - 1);
    const double above = double{step.grad_norm} - mean;
    if (above > 0 && above * above > sigmas * sigmas * variance) step.non_finite = kOutlierNorm;
  }
  norms[count % window] = step.grad_norm;
  ++count;
}

inline void check_args(const LossScaleArgs&) {}  // has only numbers, nothing to check
void check_args(const SkipOutlierArgs& a);

inline Slot<LossScaleArgs> update_loss_scale{"update_loss_scale"};
inline Slot<SkipOutlierArgs> skip_outliers{"skip_outliers"};

}  // namespace shale::kernels
