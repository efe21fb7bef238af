#pragma once

#include <cstdint>

namespace shale::optim {

// Shape of the learning rate after warm-up.
enum class Decay {
  kCosine,
  kLinear,
  kConstant,
  kLinearToZero,  // decays linearly to 0; ignores min_lr (arXiv:2502.15938)
  kWsd,           // warm-up, stable, decay: constant until the last decay_steps (arXiv:2404.06395)
  // like kWsd with another shape of the decay: after the fraction u of it, the rate is min_lr + (1
  // - sqrt(u)) (lr - min_lr), with 1 - u in kWsd (arXiv:2405.18392)
  kWsdOneMinusSqrt,
  // proportional to 1 / sqrt(step); ignores total_steps (arXiv:1706.03762, equation 3)
  kInverseSqrt,
};

// True for schedules that are constant until their last decay_steps.
constexpr bool is_wsd(Decay decay) {
  return decay == Decay::kWsd || decay == Decay::kWsdOneMinusSqrt;
}

// Learning rate schedule: linear warm-up from 0 to lr, then decay to min_lr at total_steps.
struct Schedule {
  Decay decay = Decay::kCosine;
  double lr = 3e-4;
  double min_lr = 3e-5;
  int64_t warmup_steps = 0;
  int64_t total_steps = 1;
  int64_t decay_steps = 0;  // number of steps of the decay; used only if is_wsd(decay)

  // Returns the learning rate of a step, counted from 0. During warm-up it is lr * (s + 1) /
  // warmup_steps for step s. kInverseSqrt continues with lr * sqrt(max(1, warmup_steps) / (s + 1)).
  double at(int64_t step) const;

 private:
  double progress(int64_t step, int64_t begin) const;
};

}  // namespace shale::optim
