#pragma once

#include <cstdint>

namespace shale::optim {

// How the rate falls after warm-up.
enum class Decay {
  kCosine,
  kLinear,
  kConstant,
  kLinearToZero,  // whatever min_lr is (arXiv:2502.15938)
  kWsd,           // warm-up, stable, decay: over the last decay_steps alone (arXiv:2404.06395)
  kInverseSqrt,   // with the step, not with total_steps (arXiv:1706.03762, equation 3)
};

// What the decay of kWsd looks like, u of it being over: 1 - u, or 1 - sqrt(u) (arXiv:2405.18392).
enum class DecayShape { kLinear, kOneMinusSqrt };

// Learning rate over a run: linear warm-up from 0, then decay from lr to min_lr at total_steps.
struct Schedule {
  Decay decay = Decay::kCosine;
  double lr = 3e-4;
  double min_lr = 3e-5;
  int64_t warmup_steps = 0;
  int64_t total_steps = 1;
  int64_t decay_steps = 0;  // of kWsd
  DecayShape shape = DecayShape::kLinear;

  // The rate of step 0, 1, ...; warm-up gives step s the rate lr * (s + 1) / warmup_steps, and
  // kInverseSqrt goes on from there with lr * sqrt(max(1, warmup_steps) / (s + 1)).
  double at(int64_t step) const;

 private:
  double progress(int64_t step, int64_t begin) const;
};

}  // namespace shale::optim
