#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "shale/models/diffusion/config.h"
#include "shale/models/training/task.h"
#include "shale/models/training/watch_reading.h"
#include "shale/runtime/data/images/image_batches.h"

namespace shale::models {

// Training data of a diffusion transformer: pictures, or their latents.
struct DiffusionData {
  int64_t pixels = 0, channels = 0;  // edge length of a picture; channels per pixel
  bool is_pictures = true;           // true: pictures with values from -1 to 1; false: latents
  int64_t train_images = 0;
  int64_t val_images = 0;                  // number of validation images; 0: none
  std::vector<std::string> classes;        // class names by label
  uint64_t fingerprint = 0, checksum = 0;  // see ImageSplits and LatentSplits
  std::string summary;
  // Both make batches of "images" [N, pixels, pixels, channels] f32 and "labels" [N] i32. `train`
  // makes endless training batches. `val` makes the batches of one validation; padding rows have a
  // label that the loss ignores.
  std::function<BatchSource(const BatchPlan& plan)> train;
  std::function<BatchSource(const EvalRounds& rounds, int64_t rank, int64_t ranks)> val;
};

// Opens the data that `config` names; reading it counts damaged images in `damaged`. Throws
// MissingInputError, DataError.
DiffusionData open_diffusion_data(const DiffusionConfig& config, uint64_t seed,
                                  const std::shared_ptr<DamagedImages>& damaged,
                                  const DataReading& reading);

}  // namespace shale::models
