#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "shale/models/diffusion/process.h"
#include "shale/models/dit/dit.h"
#include "shale/runtime/data/batch.h"

namespace shale::models {

// Batches for diffusion_loss(), of those of a source, which has "images" [N, H, W, C] f32 and
// "labels" [N] i32. Added are "noise", like images; "times" [N, kTimeFeatures] f32; and
// "coefficients" [N, kLossCoefficients] f32. All is a function of seed and position.
struct DiffusionBatches {
  BatchSource images;
  DiffusionKind kind = DiffusionKind::kFlow;
  DitVariant variant = DitVariant::kPaper;
  TimeDraws draws = TimeDraws::kUniform;
  double shift = 1;          // of kFlow, see shifted_time()
  int32_t no_class = 0;      // DitConfig::no_class()
  double label_dropout = 0;  // probability that a class is left out
  uint64_t seed = 0;
  // Validation: times are spread evenly, and no class is left out. Rows whose label is
  // kernels::kIgnoreTarget count nothing, here and in training.
  bool evaluates = false;
};
BatchSource diffusion_batches(DiffusionBatches spec);

// Writes standard normal numbers, of an endless stream of that name: to[i] is number first + i,
// whoever asks for it.
void write_noise(std::span<float> to, uint64_t seed, std::string_view stream, int64_t first);

}  // namespace shale::models
