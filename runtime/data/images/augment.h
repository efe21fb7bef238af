#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "shale/runtime/data/images/image.h"

namespace shale {

// Augmentation and preprocessing: makes images square, with three channels, and normalised.
struct Augmentation {
  int64_t pixels = 224;  // edge length of the result
  // Training: random crop with at least this share of the area and an aspect ratio of 3/4 to 4/3,
  // resized (arXiv:1409.4842, section 6); 1: the whole image. `mirror`: probability of mirroring
  // it.
  double crop_area = 0.08;
  double mirror = 0.5;
  // Training: number of random changes per image, of this strength, applied to 8-bit pixels after
  // crop and mirror (change_image(), RandAugment, arXiv:1909.13719); 0: none.
  int64_t changes = 0;
  int64_t strength = 9;  // 0 to kStrongestChange
  // Training: probability of a box that is 0 after normalisation, with 1/50 to 1/3 of the area and
  // an aspect ratio of 3/10 to 10/3 (random erasing, arXiv:1708.04896, algorithm 1).
  double erase = 0;
  // Evaluation: centre crop whose edge is this share of the shorter edge.
  double center_share = 0.875;
  // Normalisation per channel: (value - mean) / deviation, for values from 0 to 1.
  std::array<float, 3> mean = {0.485f, 0.456f, 0.406f};
  std::array<float, 3> deviation = {0.229f, 0.224f, 0.225f};
};

// The part of an image to use, in pixels, and whether to mirror it.
struct Crop {
  int64_t row = 0, col = 0, rows = 0, cols = 0;
  bool mirrored = false;
  friend bool operator==(const Crop&, const Crop&) = default;
};

// Returns the crop of the sample at a position in the endless sequence of training samples. It
// depends only on the arguments.
Crop training_crop(const Augmentation& augmentation, int64_t rows, int64_t cols, uint64_t seed,
                   int64_t position);
Crop evaluation_crop(const Augmentation& augmentation, int64_t rows, int64_t cols);

// Writes the crop, resized to [pixels, pixels, 3]. Uses a triangle filter that widens with the
// reduction (bilinear with antialiasing, as in PIL and torchvision). Gray images are converted to
// three equal channels.
void write_pixels(const Image& image, const Crop& crop, const Augmentation& augmentation,
                  std::span<float> to);

// Writes a training sample: crops, changes and erases as the augmentation says. The result depends
// only on the arguments.
void write_training_pixels(const Image& image, const Augmentation& augmentation, uint64_t seed,
                           int64_t position, std::span<float> to);

}  // namespace shale
