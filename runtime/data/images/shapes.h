#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "shale/runtime/data/images/image_dataset.h"

namespace shale {

// Pictures of one figure each, filled with one colour, of random size, place and direction, before
// a background of two dull colours that run into each other, with noise over all. The class is the
// figure times the colour. Picture i is a function of (seed, i) alone.
struct ShapesOptions {
  int64_t images = 8192;
  int64_t pixels = 64;  // of an edge, at least 8
  uint64_t seed = 0;
};

// "red circle", ...: by label.
std::vector<std::string> shape_classes();
// Throws ConfigError for sizes that cannot be.
std::shared_ptr<const ImageDataset> make_shapes(const ShapesOptions& options);

}  // namespace shale
