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
  // Scale s of classifier-free guidance (arXiv:2207.12598): output = u + s (c - u), with c the
  // output for the class and u the output without a class. 1: computes only c, in half the time.
  double guidance = 1;
  bool clips = true;  // kDdpm: clips the predicted x_0 to [-1, 1], the range of pictures
  uint64_t seed = 0;
};

// Samples pictures of these classes, [labels.size(), pixels, pixels, channels] f32. The first
// picture uses the noise of sample number `first`, and so on, so pictures do not depend on how
// samples are split into calls. kDdpm takes ancestral steps (arXiv:2006.11239, algorithm 2) with
// the variances of diffusion_loss(), or beta if none are learned. kFlow takes Euler steps from t =
// 1 to 0, equally long except for the shift. Throws ConfigError for steps below 1 or above
// NoiseSchedule::kSteps, and for labels that the model does not have.
Tensor sample_images(Dit& model, Context& context, const std::vector<int32_t>& labels,
                     int64_t first, const SamplerOptions& options);

}  // namespace shale::models
