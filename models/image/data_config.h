#pragma once

#include <cstdint>
#include <string>

#include "shale/base/config.h"
#include "shale/runtime/data/images/image_dataset.h"

namespace shale::models {

// What images a training program reads.
struct ImageDataConfig {
  std::string path;
  ImageFormat format = ImageFormat::kAuto;
  double val_fraction = 0.1;
  int64_t made_images = 8192;  // of ImageFormat::kShapes
  int64_t pixels = 0;          // of an edge; 0: by the data
  double mirror = 0.5;         // probability
  int64_t max_damaged = 0;     // images
};

// How --help speaks of them.
struct ImageDataWords {
  std::string path;    // what --data may be
  std::string pixels;  // where --pixels comes from if it is not given
};

// Declares the flags of the data.
void describe(ConfigSpec& spec, ImageDataConfig& config, const ImageDataWords& words);

// The data that the options ask for; `made_pixels`: the edge of shapes if --pixels is not given.
ImageDataOptions data_options(const ImageDataConfig& config, uint64_t seed, int64_t made_pixels);

}  // namespace shale::models
