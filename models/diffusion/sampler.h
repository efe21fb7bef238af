#pragma once

#include <cstdint>
#include <vector>

#include "shale/models/diffusion/process.h"
#include "shale/models/dit/dit.h"

namespace shale::models {

// How pictures are made of noise.
struct SamplerOptions {
  DiffusionKind kind = DiffusionKind::kFlow;
  int64_t steps = 50;
  double shift = 1;  // of kFlow: times go as shifted_time() has them
  // s of classifier-free guidance (arXiv:2207.12598): what the model says of no class, and s times
  // what it says of the class beyond that; 1: of the class alone, in half the time.
  double guidance = 1;
  bool clips = true;  // kDdpm: keeps the x_0 that it expects within [-1, 1], as pictures are
  uint64_t seed = 0;
};

// Pictures of these classes, [labels.size(), pixels, pixels, channels] f32. The noise is that of
// samples `first` and the following, so that it does not matter how samples are cut into calls.
// kDdpm goes back step by step (arXiv:2006.11239, algorithm 2) with the variances of
// diffusion_loss(), or beta where none are learned; kFlow takes steps from t = 1 to 0, equal
// ones but for the shift, along what the model says (Euler's method). Throws ConfigError for steps
// below 1, or beyond NoiseSchedule::kSteps, and for labels that the model has not.
Tensor sample_images(Dit& model, Context& context, const std::vector<int32_t>& labels,
                     int64_t first, const SamplerOptions& options);

}  // namespace shale::models
