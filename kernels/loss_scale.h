#pragma once

#include "shale/base/exec.h"
#include "shale/kernels/slot.h"

namespace shale::kernels {

// Dynamic loss scaling (arXiv:1710.03740, section 3.2): after clip_factor has found the gradient
// finite or not, moves step->loss_scale on for the next step.
//   finite: after growth_interval such steps in a row the value grows, and `hysteresis` overflows
//     are tolerated again
//   not: the step is counted as skipped (optimizers do nothing while step->non_finite is set); once
//     `hysteresis` overflows have used up the tolerance, this one and every further one lower the
//     value. At min_value it can fall no more: step->non_finite becomes kOverflowAtMinScale.
struct LossScaleArgs {
  float growth_factor = 2;
  float backoff_factor = 0.5f;
  uint32_t growth_interval = 2000;  // steps
  uint32_t hysteresis = 1;          // overflows, at least 1
  float min_value = 1;
  float max_value = 0x1p24f;
};
inline constexpr uint32_t kOverflowAtMinScale = 2;

// What the slot does, for every device.
constexpr void advance_loss_scale(const LossScaleArgs& a, LossScale& state, uint32_t& non_finite) {
  if (non_finite == 0) {
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

inline void check_args(const LossScaleArgs&) {}  // numbers alone

inline Slot<LossScaleArgs> update_loss_scale{"update_loss_scale"};

}  // namespace shale::kernels
