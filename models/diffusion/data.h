#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "shale/models/diffusion/config.h"
#include "shale/models/training/task.h"
#include "shale/runtime/data/images/image_batches.h"

namespace shale::models {

// What a diffusion transformer learns: pictures, or their latents.
struct DiffusionData {
  int64_t pixels = 0, channels = 0;  // of a picture's edge; of a pixel
  bool is_pictures = true;           // values from -1 to 1 that can be shown
  int64_t train_images = 0;
  int64_t val_images = 0;                  // 0: there are none
  std::vector<std::string> classes;        // names, by label
  uint64_t fingerprint = 0, checksum = 0;  // see ImageSplits, LatentSplits
  std::string summary;
  // Batches of "images" [N, pixels, pixels, channels] f32 and "labels" [N] i32: endless ones, and
  // those of a validation, in which padding has a label that the loss ignores.
  std::function<BatchSource(const BatchPlan& plan)> train;
  std::function<BatchSource(const EvalRounds& rounds, int64_t rank, int64_t ranks)> val;
};

// Opens what the options ask for. `damaged` outlives it. Throws MissingInputError, DataError.
DiffusionData open_diffusion_data(const DiffusionConfig& config, uint64_t seed,
                                  const std::shared_ptr<DamagedImages>& damaged);

}  // namespace shale::models
