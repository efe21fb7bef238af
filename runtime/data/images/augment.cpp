#include "shale/runtime/data/images/augment.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "shale/base/error.h"
#include "shale/runtime/data/images/rand_augment.h"
#include "shale/runtime/data/images/resample.h"
#include "shale/runtime/data/images/sample_draws.h"

namespace shale {
namespace {

Crop centered(int64_t rows, int64_t cols, int64_t crop_rows, int64_t crop_cols) {
  return {.row = (rows - crop_rows) / 2,
          .col = (cols - crop_cols) / 2,
          .rows = crop_rows,
          .cols = crop_cols};
}

// Returns the filter taps that resize `size` pixels of a line, from pixel `first` on, to `pixels`
// pixels.
std::vector<Taps> taps_of(int64_t first, int64_t size, int64_t pixels, bool mirrored) {
  std::vector<Taps> taps = resample_taps(size, pixels, ResampleFilter::kTriangle);
  for (Taps& some : taps) some.begin += first;
  if (mirrored) std::reverse(taps.begin(), taps.end());
  return taps;
}

// Resizes the lines of a crop horizontally. Returns [crop.rows, pixels, 3], values 0 to 1.
std::vector<float> resize_across(const Image& image, const Crop& crop, int64_t pixels) {
  const std::vector<Taps> across = taps_of(crop.col, crop.cols, pixels, crop.mirrored);
  std::vector<float> lines(static_cast<size_t>(crop.rows * pixels * 3));
  float* to = lines.data();
  for (int64_t row = crop.row; row < crop.row + crop.rows; ++row) {
    for (const Taps& taps : across) {
      std::array<float, 3> sum{};
      const uint8_t* from = image.at(row, taps.begin);
      for (const float weight : taps.weights) {
        for (size_t c = 0; c < 3; ++c) {
          sum[c] += weight * static_cast<float>(from[image.channels == 3 ? c : 0]);
        }
        from += image.channels;
      }
      for (const float value : sum) *to++ = value / 255;
    }
  }
  return lines;
}

}  // namespace

Crop training_crop(const Augmentation& augmentation, int64_t rows, int64_t cols, uint64_t seed,
                   int64_t position) {
  constexpr uint32_t kTries = 10;
  constexpr double kWidest = 4.0 / 3;
  const SampleDraws draws(seed, position);
  const auto number = [&](uint32_t what) { return double{draws.number(kDrawCrop + what)}; };
  const bool mirrored = number(0) < augmentation.mirror;
  const auto with_mirror = [mirrored](Crop crop) {
    crop.mirrored = mirrored;
    return crop;
  };
  if (augmentation.crop_area >= 1) return with_mirror(centered(rows, cols, rows, cols));
  const auto area = static_cast<double>(rows * cols);
  for (uint32_t i = 0; i < kTries; ++i) {
    const double share = augmentation.crop_area + (1 - augmentation.crop_area) * number(4 * i + 4);
    const double ratio = std::exp((2 * number(4 * i + 5) - 1) * std::log(kWidest));
    const auto crop_cols = static_cast<int64_t>(std::lround(std::sqrt(area * share * ratio)));
    const auto crop_rows = static_cast<int64_t>(std::lround(std::sqrt(area * share / ratio)));
    if (crop_cols < 1 || crop_rows < 1 || crop_cols > cols || crop_rows > rows) continue;
    const auto place = [&](int64_t room, uint32_t what) {
      return static_cast<int64_t>(number(what) * static_cast<double>(room + 1));
    };
    return with_mirror({.row = place(rows - crop_rows, 4 * i + 6),
                        .col = place(cols - crop_cols, 4 * i + 7),
                        .rows = crop_rows,
                        .cols = crop_cols});
  }
  // Takes the centre of the image, with the longer edge cut to the largest allowed aspect ratio.
  const auto longest = [](int64_t shorter) {
    return static_cast<int64_t>(std::lround(static_cast<double>(shorter) * kWidest));
  };
  return with_mirror(
      centered(rows, cols, std::min(rows, longest(cols)), std::min(cols, longest(rows))));
}

Crop evaluation_crop(const Augmentation& augmentation, int64_t rows, int64_t cols) {
  const auto shorter = static_cast<double>(std::min(rows, cols));
  const int64_t edge =
      std::max<int64_t>(std::lround(shorter * augmentation.center_share), int64_t{1});
  return centered(rows, cols, edge, edge);
}

namespace {

void check_crop(const Image& image, const Crop& crop, int64_t pixels, int64_t values) {
  if (values == pixels * pixels * 3 && crop.rows >= 1 && crop.cols >= 1 &&
      crop.row + crop.rows <= image.rows && crop.col + crop.cols <= image.cols) {
    return;
  }
  throw InternalError(cat("augment: found a crop of ", crop.cols, " x ", crop.rows,
                          " pixels at column ", crop.col, ", row ", crop.row,
                          ", expected one within the image of ", image.cols, " x ", image.rows,
                          " pixels, and 3 values per pixel, found ", values));
}

// Writes the resized crop as [pixels, pixels, 3], values 0 to 1.
void write_resized(const Image& image, const Crop& crop, int64_t pixels, std::span<float> to) {
  check_crop(image, crop, pixels, std::ssize(to));
  const std::vector<float> lines = resize_across(image, crop, pixels);
  const std::vector<Taps> down = taps_of(0, crop.rows, pixels, /*mirrored=*/false);
  const int64_t width = pixels * 3;
  for (int64_t row = 0; row < pixels; ++row) {
    const Taps& taps = down[static_cast<size_t>(row)];
    float* out = to.data() + row * width;
    std::fill_n(out, width, 0.f);
    for (size_t k = 0; k < taps.weights.size(); ++k) {
      const float* line = lines.data() + (taps.begin + static_cast<int64_t>(k)) * width;
      for (int64_t i = 0; i < width; ++i) out[i] += taps.weights[k] * line[i];
    }
  }
}

void normalise(const Augmentation& augmentation, std::span<float> values) {
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t c = i % 3;
    values[i] = (values[i] - augmentation.mean[c]) / augmentation.deviation[c];
  }
}

void change(const Augmentation& augmentation, const SampleDraws& draws, std::span<float> values) {
  Image image;
  image.resize(augmentation.pixels, augmentation.pixels, 3);
  std::transform(values.begin(), values.end(), image.pixels.begin(), [](float value) {
    return static_cast<uint8_t>(std::clamp(std::lround(255 * value), 0l, 255l));
  });
  for (int64_t i = 0; i < augmentation.changes; ++i) {
    const auto at = kDrawChanges + static_cast<uint32_t>(2 * i);
    change_image(image, static_cast<ImageChange>(draws.below(at, kImageChanges)),
                 static_cast<int>(augmentation.strength), draws.number(at + 1) < 0.5f);
  }
  std::transform(image.pixels.begin(), image.pixels.end(), values.begin(),
                 [](uint8_t value) { return static_cast<float>(value) / 255; });
}

void erase_box(const Augmentation& augmentation, const SampleDraws& draws,
               std::span<float> values) {
  constexpr uint32_t kTries = 10;
  const int64_t n = augmentation.pixels;
  if (draws.number(kDrawErase) >= augmentation.erase) return;
  const double least = std::log(0.3), most = std::log(10.0 / 3);
  for (uint32_t i = 1; i <= kTries; ++i) {
    const uint32_t at = kDrawErase + 4 * i;
    const double area = static_cast<double>(n * n) * (0.02 + (1.0 / 3 - 0.02) * draws.number(at));
    const double ratio = std::exp(least + (most - least) * draws.number(at + 1));
    const auto rows = static_cast<int64_t>(std::lround(std::sqrt(area * ratio)));
    const auto cols = static_cast<int64_t>(std::lround(std::sqrt(area / ratio)));
    if (rows >= n || cols >= n) continue;
    const int64_t row = draws.below(at + 2, n - rows + 1), col = draws.below(at + 3, n - cols + 1);
    for (int64_t r = row; r < row + rows; ++r) {
      std::fill_n(values.data() + (r * n + col) * 3, cols * 3, 0.f);
    }
    return;
  }
}

}  // namespace

void write_pixels(const Image& image, const Crop& crop, const Augmentation& augmentation,
                  std::span<float> to) {
  write_resized(image, crop, augmentation.pixels, to);
  normalise(augmentation, to);
}

void write_training_pixels(const Image& image, const Augmentation& augmentation, uint64_t seed,
                           int64_t position, std::span<float> to) {
  const SampleDraws draws(seed, position);
  write_resized(image, training_crop(augmentation, image.rows, image.cols, seed, position),
                augmentation.pixels, to);
  if (augmentation.changes > 0) change(augmentation, draws, to);
  normalise(augmentation, to);
  erase_box(augmentation, draws, to);
}

}  // namespace shale
