#pragma once

#include <cstdint>

#include "shale/runtime/data/images/image.h"

namespace shale {

// Changes of a picture (arXiv:1909.13719), as torchvision makes them of PIL's images, to the bit.
// The order is that of torchvision's table.
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

// The strongest change; 0 leaves a picture as it is, but for posterize, autocontrast and equalize.
inline constexpr int kStrongestChange = 30;

// Changes a picture of three channels. strength: 0 to kStrongestChange; negative: in the other
// direction, where there are two. What comes from outside of the picture is black, and pixels are
// moved as wholes. Throws InternalError for another picture or strength.
void change_image(Image& image, ImageChange change, int strength, bool negative);

}  // namespace shale
