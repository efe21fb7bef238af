#pragma once

#include <cstdint>

#include "shale/runtime/data/images/image.h"

namespace shale {

// Changes of an image in RandAugment (arXiv:1909.13719), in the order of torchvision's table.
// Results equal those of torchvision for PIL images to the bit.
enum class ImageChange : uint8_t {
  kIdentity,
  kShearX,
  kShearY,
  kTranslateX,
  kTranslateY,
  kRotate,
  kBrightness,
  kColor,
  kContrast,
  kSharpness,
  kPosterize,
  kSolarize,
  kAutoContrast,
  kEqualize,
};
inline constexpr int kImageChanges = 14;
const char* to_string(ImageChange change);

// Maximum strength. At strength 0 an image does not change, except by posterize, autocontrast and
// equalize.
inline constexpr int kStrongestChange = 30;

// Changes an image of three channels. strength: 0 to kStrongestChange. negative: changes in the
// opposite direction, if the change has two. Pixels from outside the image are black. Pixels are
// moved without interpolation. Throws InternalError for another number of channels or an invalid
// strength.
void change_image(Image& image, ImageChange change, int strength, bool negative);

}  // namespace shale
