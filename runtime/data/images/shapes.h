#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "shale/runtime/data/images/image_dataset.h"

namespace shale {

// Generated images. Each shows one figure in one colour, of random size, position and rotation, on
// a gradient of two dull colours, with noise. The class is the combination of figure and colour.
// Image i depends only on (seed, i).
struct ShapesOptions {
  int64_t images = 8192;
  int64_t pixels = 64;  // edge length, at least 8
  uint64_t seed = 0;
};

// Class names by label: "red circle", ...
std::vector<std::string> shape_classes();
// Throws ConfigError for invalid sizes.
std::shared_ptr<const ImageDataset> make_shapes(const ShapesOptions& options);

}  // namespace shale
