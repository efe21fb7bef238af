#include "shale/runtime/data/images/augment.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "shale/base/error.h"
#include "shale/base/rng.h"

namespace shale {
namespace {

// Numbers in [0, 1) of one sample, by what they are for.
float draw(uint64_t seed, int64_t position, uint32_t what) {
  const auto at = static_cast<uint64_t>(position);
  const PhiloxKey key = rng_key(seed ^ hash_name("augmentation"), RngDomain::kSampling);
  const PhiloxCounter words =
      philox({static_cast<uint32_t>(at), static_cast<uint32_t>(at >> 32), what / 4, 0}, key);
  return uniform_f32(words[what % 4]);
}

Crop centered(int64_t rows, int64_t cols, int64_t crop_rows, int64_t crop_cols) {
  return {.row = (rows - crop_rows) / 2,
          .col = (cols - crop_cols) / 2,
          .rows = crop_rows,
          .cols = crop_cols};
}

// A pixel of the result as a weighted sum of pixels [begin, begin + weights) of a line.
struct Taps {
  int64_t begin = 0;
  std::vector<float> weights;
};

// For a line of `size` pixels from `first` on, made `pixels` long.
std::vector<Taps> taps_of(int64_t first, int64_t size, int64_t pixels, bool mirrored) {
  const double ratio = static_cast<double>(size) / static_cast<double>(pixels);
  const double reach = std::max(ratio, 1.0);
  std::vector<Taps> all(static_cast<size_t>(pixels));
  for (int64_t i = 0; i < pixels; ++i) {
    const double center = (static_cast<double>(i) + 0.5) * ratio;
    const auto begin = std::max<int64_t>(static_cast<int64_t>(std::floor(center - reach)), 0);
    const auto end = std::min(static_cast<int64_t>(std::ceil(center + reach)), size);
    std::vector<double> weights;
    double sum = 0;
    for (int64_t k = begin; k < end; ++k) {
      const double distance = std::abs(static_cast<double>(k) + 0.5 - center) / reach;
      weights.push_back(std::max(1 - distance, 0.0));
      sum += weights.back();
    }
    Taps& taps = all[static_cast<size_t>(mirrored ? pixels - 1 - i : i)];
    taps.begin = first + begin;
    for (const double weight : weights) taps.weights.push_back(static_cast<float>(weight / sum));
  }
  return all;
}

// Lines [crop.row, crop.row + crop.rows) of the picture, resized across: [rows, pixels, 3], 0 to 1.
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
  const auto number = [&](uint32_t what) { return double{draw(seed, position, what)}; };
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
  // A picture that is longer than the widest crop: its middle.
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

void write_pixels(const Image& image, const Crop& crop, const Augmentation& augmentation,
                  std::span<float> to) {
  const int64_t n = augmentation.pixels;
  if (std::ssize(to) != n * n * 3 || crop.rows < 1 || crop.cols < 1 ||
      crop.row + crop.rows > image.rows || crop.col + crop.cols > image.cols) {
    throw InternalError(cat("augment: a crop of ", crop.cols, " x ", crop.rows, " at ", crop.col,
                            ", ", crop.row, " of ", image.cols, " x ", image.rows, " to ",
                            to.size(), " values"));
  }
  const std::vector<float> lines = resize_across(image, crop, n);
  const std::vector<Taps> down = taps_of(0, crop.rows, n, /*mirrored=*/false);
  const int64_t width = n * 3;
  for (int64_t row = 0; row < n; ++row) {
    const Taps& taps = down[static_cast<size_t>(row)];
    float* out = to.data() + row * width;
    std::fill_n(out, width, 0.f);
    for (size_t k = 0; k < taps.weights.size(); ++k) {
      const float* line = lines.data() + (taps.begin + static_cast<int64_t>(k)) * width;
      for (int64_t i = 0; i < width; ++i) out[i] += taps.weights[k] * line[i];
    }
    for (int64_t i = 0; i < width; ++i) {
      const auto c = static_cast<size_t>(i % 3);
      out[i] = (out[i] - augmentation.mean[c]) / augmentation.deviation[c];
    }
  }
}

}  // namespace shale
