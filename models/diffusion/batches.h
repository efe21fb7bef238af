#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "shale/models/diffusion/process.h"
#include "shale/models/dit/dit.h"
#include "shale/runtime/data/batch.h"

namespace shale::models {

// Makes batches for diffusion_loss() from the batches of a source. The source provides "images" [N,
// H, W, C] f32 and "labels" [N] i32. This adds "noise", shaped like images; "times" [N,
// kTimeFeatures] f32; and "coefficients" [N, kLossCoefficients] f32. Values depend only on the seed
// and on a sample's position in the data.
struct DiffusionBatches {
  BatchSource images;
  DiffusionKind kind = DiffusionKind::kFlow;
  DitVariant variant = DitVariant::kPaper;
  TimeDraws draws = TimeDraws::kUniform;
  double shift = 1;          // used with kFlow, see shifted_time()
  int32_t no_class = 0;      // label of samples without a class, DitConfig::no_class()
  double label_dropout = 0;  // probability of dropping a label
  uint64_t seed = 0;
  // True for validation: times are evenly spread, and no label is dropped. Rows with the label
  // kernels::kIgnoreTarget never count, neither in validation nor in training.
  bool evaluates = false;
};
BatchSource diffusion_batches(DiffusionBatches spec);

// Writes numbers [first, first + to.size()) of an endless stream of standard normal numbers. `seed`
// and the name `stream` determine the stream.
void write_noise(std::span<float> to, uint64_t seed, std::string_view stream, int64_t first);

}  // namespace shale::models
