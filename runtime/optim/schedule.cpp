#include "shale/runtime/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace shale::optim {

double Schedule::at(int64_t step) const {
  if (step < warmup_steps) {
    return lr * static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
  }
  const auto decay_steps = static_cast<double>(std::max<int64_t>(1, total_steps - warmup_steps));
  const double progress = std::min(1.0, static_cast<double>(step - warmup_steps) / decay_steps);
  switch (decay) {
    case Decay::kCosine:
      return min_lr + (lr - min_lr) * 0.5 * (1 + std::cos(std::numbers::pi * progress));
    case Decay::kLinear: return lr + (min_lr - lr) * progress;
    case Decay::kConstant: break;
  }
  return lr;
}

}  // namespace shale::optim
