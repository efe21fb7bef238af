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
  // Scale s of classifier-free guidance (arXiv:2207.12598): the output without a class, plus s
  // times the difference of the output for the class; 1: only the output for the class, in half the
  // time.
  double guidance = 1;
  bool clips = true;  // kDdpm: clips the predicted x_0 to [-1, 1], the range of pictures
  uint64_t seed = 0;
};

// Samples pictures of these classes, [labels.size(), pixels, pixels, channels] f32. The noise is
// that of samples `first` and following, so results do not depend on the split into calls. kDdpm
// takes ancestral steps (arXiv:2006.11239, algorithm 2) with the variances of diffusion_loss(), or
// beta if none are learned. kFlow takes Euler steps from t = 1 to 0, equally long except for the
// shift. Throws ConfigError for steps below 1 or above NoiseSchedule::kSteps, and for labels that
// the model does not have.
Tensor sample_images(Dit& model, Context& context, const std::vector<int32_t>& labels,
                     int64_t first, const SamplerOptions& options);

}  // namespace shale::models
