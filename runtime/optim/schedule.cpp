#include "shale/runtime/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace shale::optim {

// Returns the fraction of the steps from `begin` to the end that are done before `step`: 0 to 1.
double Schedule::progress(int64_t step, int64_t begin) const {
  const auto steps = static_cast<double>(std::max<int64_t>(1, total_steps - begin));
  return std::clamp(static_cast<double>(step - begin) / steps, 0.0, 1.0);
}

double Schedule::at(int64_t step) const {
  const auto warmup = static_cast<double>(std::max<int64_t>(1, warmup_steps));
  if (step < warmup_steps) return lr * static_cast<double>(step + 1) / warmup;
  const double u = progress(step, warmup_steps);
  switch (decay) {
    case Decay::kCosine: return min_lr + (lr - min_lr) * 0.5 * (1 + std::cos(std::numbers::pi * u));
    case Decay::kLinear: return lr + (min_lr - lr) * u;
    case Decay::kLinearToZero: return lr * (1 - u);
    case Decay::kWsd:
    case Decay::kWsdOneMinusSqrt: {
      const double over = progress(step, total_steps - decay_steps);
      return lr + (min_lr - lr) * (decay == Decay::kWsd ? over : std::sqrt(over));
    }
    case Decay::kInverseSqrt: return lr * std::sqrt(warmup / static_cast<double>(step + 1));
    case Decay::kConstant: break;
  }
  return lr;
}

}  // namespace shale::optim
