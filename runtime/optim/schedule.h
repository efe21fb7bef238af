#pragma once

#include <cstdint>

namespace shale::optim {

// Shape of the learning rate after warm-up.
enum class Decay {
  kCosine,
  kLinear,
  kConstant,
  kLinearToZero,  // to 0, ignoring min_lr (arXiv:2502.15938)
  kWsd,           // warm-up, stable, decay: decays only in the last decay_steps (arXiv:2404.06395)
  kWsdOneMinusSqrt,  // kWsd, but after the fraction u of the decay, 1 - sqrt(u) of the way from
                     // min_lr to lr is left, instead of 1 - u (arXiv:2405.18392)
  kInverseSqrt,      // by the step number, ignoring total_steps (arXiv:1706.03762, equation 3)
};

// True for schedules whose rate is constant until their last decay_steps.
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
  int64_t decay_steps = 0;  // length of the decay, used only if is_wsd(decay)

  // Learning rate of step 0, 1, ... During warm-up step s has lr * (s + 1) / warmup_steps;
  // kInverseSqrt continues with lr * sqrt(max(1, warmup_steps) / (s + 1)).
  double at(int64_t step) const;

 private:
  double progress(int64_t step, int64_t begin) const;
};

}  // namespace shale::optim
