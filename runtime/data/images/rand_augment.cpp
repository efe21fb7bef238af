#include "shale/runtime/data/images/rand_augment.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <utility>

#include "shale/base/error.h"

namespace shale {
namespace {

// ---- Geometry: the pixel at (x, y) comes from (a x + b y + c, d x + e y + f) ----

using Affine = std::array<double, 6>;

// Moves pixels by an affine map, in fixed point with 16 fractional bits, like PIL's nearest-pixel
// transform.
void move_pixels(Image& image, const Affine& m) {
  const auto fixed = [](double value) {
    return static_cast<int64_t>(std::floor(value * 65536.0 + 0.5));
  };
  const int64_t a = fixed(m[0]), b = fixed(m[1]), d = fixed(m[3]), e = fixed(m[4]);
  const int64_t c = fixed(m[2] + m[0] * 0.5 + m[1] * 0.5);
  const int64_t f = fixed(m[5] + m[3] * 0.5 + m[4] * 0.5);
  Image moved;
  moved.resize(image.rows, image.cols, image.channels);
  std::fill(moved.pixels.begin(), moved.pixels.end(), uint8_t{0});
  for (int64_t y = 0; y < image.rows; ++y) {
    for (int64_t x = 0; x < image.cols; ++x) {
      const int64_t from_x = (c + a * x + b * y) >> 16, from_y = (f + d * x + e * y) >> 16;
      if (from_x < 0 || from_x >= image.cols || from_y < 0 || from_y >= image.rows) continue;
      std::copy_n(image.at(from_y, from_x), image.channels, moved.at(y, x));
    }
  }
  image = std::move(moved);
}

Affine rotation(const Image& image, double degrees) {
  const auto rounded = [](double value) { return std::round(value * 1e15) / 1e15; };
  const double angle = -degrees * std::numbers::pi / 180;
  const double cosine = rounded(std::cos(angle)), sine = rounded(std::sin(angle));
  const double x = static_cast<double>(image.cols) / 2, y = static_cast<double>(image.rows) / 2;
  return {cosine, sine, cosine * -x + sine * -y + x, -sine, cosine, -sine * -x + cosine * -y + y};
}

// ---- Colours ----

uint8_t gray_of(const uint8_t* rgb) {
  return static_cast<uint8_t>((rgb[0] * 19595 + rgb[1] * 38470 + rgb[2] * 7471 + 0x8000) >> 16);
}

// Returns from + share * (to - from), clamped to [0, 255]. A share outside [0, 1] extrapolates.
uint8_t blend(uint8_t from, uint8_t to, float share) {
  const float value = static_cast<float>(from) +
                      share * static_cast<float>(static_cast<int>(to) - static_cast<int>(from));
  return static_cast<uint8_t>(std::clamp(value, 0.f, 255.f));
}

// Blends each value of the image with the value that plain(pixel, y, x, channel) returns.
template <typename Plain>
void enhance(Image& image, float share, const Plain& plain) {
  for (int64_t y = 0; y < image.rows; ++y) {
    for (int64_t x = 0; x < image.cols; ++x) {
      uint8_t* const pixel = image.at(y, x);
      const std::array<uint8_t, 3> before = {pixel[0], pixel[1], pixel[2]};
      for (size_t c = 0; c < 3; ++c) pixel[c] = blend(plain(before, y, x, c), before[c], share);
    }
  }
}

using Pixel = std::array<uint8_t, 3>;

void change_contrast(Image& image, float share) {
  int64_t sum = 0;
  const int64_t count = image.rows * image.cols;
  for (int64_t i = 0; i < count; ++i) sum += gray_of(image.pixels.data() + 3 * i);
  const auto mean =
      static_cast<uint8_t>(static_cast<double>(sum) / static_cast<double>(count) + 0.5);
  enhance(image, share, [mean](const Pixel&, int64_t, int64_t, size_t) { return mean; });
}

void change_sharpness(Image& image, float share) {
  const Image before = image;
  const auto smooth = [&before](const Pixel& pixel, int64_t y, int64_t x, size_t c) {
    if (y == 0 || x == 0 || y + 1 == before.rows || x + 1 == before.cols) return pixel[c];
    int sum = 4 * pixel[c];  // 3 x 3 filter: weight 5 for the pixel, 1 for each neighbour
    for (int64_t dy = -1; dy <= 1; ++dy) {
      for (int64_t dx = -1; dx <= 1; ++dx) sum += before.at(y + dy, x + dx)[c];
    }
    return static_cast<uint8_t>((2 * sum + 13) / 26);
  };
  enhance(image, share, smooth);
}

// ---- Lookup tables ----

using Histogram = std::array<int64_t, 256>;
using Table = std::array<uint8_t, 256>;

template <typename Function>
Table table_of(const Function& function) {
  Table table;
  for (int i = 0; i < 256; ++i) {
    table[static_cast<size_t>(i)] = static_cast<uint8_t>(std::clamp(function(i), 0, 255));
  }
  return table;
}

template <typename MakeTable>
void map_channels(Image& image, const MakeTable& make) {
  for (size_t c = 0; c < 3; ++c) {
    Histogram counts{};
    for (size_t i = c; i < image.pixels.size(); i += 3) ++counts[image.pixels[i]];
    const Table table = make(counts);
    for (size_t i = c; i < image.pixels.size(); i += 3) image.pixels[i] = table[image.pixels[i]];
  }
}

int first_of(const Histogram& counts) {
  return static_cast<int>(
      std::find_if(counts.begin(), counts.end(), [](int64_t n) { return n > 0; }) - counts.begin());
}

int last_of(const Histogram& counts) {
  int last = 255;
  while (last > 0 && counts[static_cast<size_t>(last)] == 0) --last;
  return last;
}

int same(int value) {
  return value;
}

Table stretched(const Histogram& counts) {
  const int low = first_of(counts), high = last_of(counts);
  if (high <= low) return table_of(same);
  const double scale = 255.0 / (high - low), offset = -low * scale;
  return table_of([=](int value) { return static_cast<int>(value * scale + offset); });
}

Table equalized(const Histogram& counts) {
  int64_t all = 0;
  for (const int64_t count : counts) all += count;
  const int64_t step = (all - counts[static_cast<size_t>(last_of(counts))]) / 255;
  if (step == 0) return table_of(same);
  int64_t below = step / 2;
  return table_of([&](int value) {
    const auto level = static_cast<int>(below / step);
    below += counts[static_cast<size_t>(value)];
    return level;
  });
}

// ---- Strengths ----

// Returns torch.linspace(begin, end) at index `strength`. It is rounded as in torch: the product
// and the sum are rounded once, starting from the nearer end.
float strength_between(float begin, float end, int strength) {
  const double step = (end - begin) / static_cast<float>(kStrongestChange);
  return static_cast<float>(strength <= kStrongestChange / 2
                                ? double{begin} + step * strength
                                : double{end} - step * (kStrongestChange - strength));
}

}  // namespace

const char* to_string(ImageChange change) {
  constexpr std::array<const char*, kImageChanges> kNames = {
      "Identity", "ShearX",   "ShearY",    "TranslateX", "TranslateY", "Rotate",       "Brightness",
      "Color",    "Contrast", "Sharpness", "Posterize",  "Solarize",   "AutoContrast", "Equalize"};
  return kNames.at(static_cast<size_t>(change));
}

void change_image(Image& image, ImageChange change, int strength, bool negative) {
  if (image.channels != 3 || strength < 0 || strength > kStrongestChange) {
    throw InternalError(cat("change_image: found ", image.channels, " channels and strength ",
                            strength, ", expected 3 channels and a strength from 0 to ",
                            kStrongestChange));
  }
  const auto up_to = [&](double end) {
    const double amount = double{strength_between(0, static_cast<float>(end), strength)};
    return negative ? -amount : amount;
  };
  const auto factor = [&] { return static_cast<float>(1 + up_to(0.9)); };
  // Returns the shift in pixels for an edge of this length.
  const auto shift = [&](int64_t edge) {
    return std::trunc(up_to(150.0 / 331.0 * static_cast<double>(edge)));
  };
  switch (change) {
    case ImageChange::kIdentity: return;
    case ImageChange::kShearX: return move_pixels(image, {1, up_to(0.3), 0, 0, 1, 0});
    case ImageChange::kShearY: return move_pixels(image, {1, 0, 0, up_to(0.3), 1, 0});
    case ImageChange::kTranslateX: return move_pixels(image, {1, 0, -shift(image.cols), 0, 1, 0});
    case ImageChange::kTranslateY: return move_pixels(image, {1, 0, 0, 0, 1, -shift(image.rows)});
    case ImageChange::kRotate: return move_pixels(image, rotation(image, up_to(30)));
    case ImageChange::kBrightness:
      return enhance(image, factor(),
                     [](const Pixel&, int64_t, int64_t, size_t) { return uint8_t{0}; });
    case ImageChange::kColor:
      return enhance(image, factor(), [](const Pixel& pixel, int64_t, int64_t, size_t) {
        return gray_of(pixel.data());
      });
    case ImageChange::kContrast: return change_contrast(image, factor());
    case ImageChange::kSharpness: return change_sharpness(image, factor());
    case ImageChange::kPosterize: {
      const auto dropped = static_cast<int>(std::nearbyint(strength / (kStrongestChange / 4.0)));
      return map_channels(image, [dropped](const Histogram&) {
        return table_of([dropped](int value) { return value >> dropped << dropped; });
      });
    }
    case ImageChange::kSolarize: {
      const auto threshold = double{strength_between(255, 0, strength)};
      return map_channels(image, [threshold](const Histogram&) {
        return table_of([threshold](int value) { return value < threshold ? value : 255 - value; });
      });
    }
    case ImageChange::kAutoContrast: return map_channels(image, stretched);
    case ImageChange::kEqualize: return map_channels(image, equalized);
  }
}

}  // namespace shale
