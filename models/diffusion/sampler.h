#pragma once

#include <cstdint>
#include <vector>

#include "shale/models/diffusion/process.h"
#include "shale/models/dit/dit.h"

namespace shale::models {

// Options of sampling pictures from noise.
struct SamplerOptions {
  DiffusionKind kind = DiffusionKind::kFlow;
  int64_t steps = 50;
  double shift = 1;  // kFlow: shift of shifted_time(), applied to the times
  // Scale s of classifier-free guidance (arXiv:2207.12598): output = u + s (c - u). c is the
  // model's output for the class, u its output without a class. 1: computes only c, in half the
  // time.
  double guidance = 1;
  bool clips = true;  // kDdpm: clip the predicted x_0 to [-1, 1], the range of pictures
  uint64_t seed = 0;
};

// Samples pictures of these classes, [labels.size(), pixels, pixels, channels] f32. Picture i uses
// the noise of sample number first + i, so pictures do not depend on how samples are split into
// calls. kDdpm takes ancestral steps (arXiv:2006.11239, algorithm 2) with the variances of
// diffusion_loss(), or with beta if the model learns none. kFlow takes Euler steps from t = 1 to 0,
// of equal length if the shift is 1. Throws ConfigError for steps below 1 or above
// NoiseSchedule::kSteps, and for labels that the model does not have.
Tensor sample_images(Dit& model, Context& context, const std::vector<int32_t>& labels,
                     int64_t first, const SamplerOptions& options);

}  // namespace shale::models
