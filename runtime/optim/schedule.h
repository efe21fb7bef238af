#pragma once

#include <cstdint>

namespace shale::optim {

// How the rate falls after warm-up.
enum class Decay { kCosine, kLinear, kConstant };

// Learning rate over a run: linear warm-up from 0, then decay from lr to min_lr at total_steps.
struct Schedule {
  Decay decay = Decay::kCosine;
  double lr = 3e-4;
  double min_lr = 3e-5;
  int64_t warmup_steps = 0;
  int64_t total_steps = 1;

  // The rate of step 0, 1, ...; warm-up gives step s the rate lr * (s + 1) / warmup_steps.
  double at(int64_t step) const;
};

}  // namespace shale::optim
