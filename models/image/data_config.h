#pragma once

#include <cstdint>
#include <string>

#include "shale/base/config.h"
#include "shale/models/training/watch_reading.h"
#include "shale/runtime/data/images/image_dataset.h"

namespace shale::models {

// Options of image data, for all programs that train on images.
struct ImageDataConfig {
  std::string path;
  ImageFormat format = ImageFormat::kAuto;
  double val_fraction = 0.1;
  int64_t made_images = 8192;  // number of images for ImageFormat::kShapes
  int64_t pixels = 0;          // edge length of an image; 0: depends on the data
  double mirror = 0.5;         // probability of mirroring an image
  int64_t max_damaged = 0;     // maximum number of damaged images
};

// Texts about the data for --help.
struct ImageDataWords {
  std::string path;    // possible values of --data
  std::string pixels;  // default of --pixels
};

// Declares the flags of `config`.
void describe(ConfigSpec& spec, ImageDataConfig& config, const ImageDataWords& words);

// Returns the data options that follow from `config`. made_pixels: default edge length of images of
// ImageFormat::kShapes.
ImageDataOptions data_options(const ImageDataConfig& config, uint64_t seed, int64_t made_pixels,
                              const DataReading& reading);

}  // namespace shale::models
