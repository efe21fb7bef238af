#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "shale/runtime/data/images/image.h"

namespace shale {

// Augmentation and preprocessing. The result is a square image with three channels, normalised.
struct Augmentation {
  int64_t pixels = 224;  // edge length of the result
  // Training: minimum area of the random crop, as a fraction of the image's area. The crop has an
  // aspect ratio of 3/4 to 4/3 and is resized (arXiv:1409.4842, section 6). 1: the whole image.
  // mirror: probability of mirroring.
  double crop_area = 0.08;
  double mirror = 0.5;
  // Training: number of random changes per image; 0: none. They have the strength `strength`, and
  // apply to 8-bit pixels after crop and mirror (change_image(), RandAugment, arXiv:1909.13719).
  int64_t changes = 0;
  int64_t strength = 9;  // strength of the changes, 0 to kStrongestChange
  // Training: probability of erasing a random box, which is then 0 after normalisation. It has 1/50
  // to 1/3 of the area and an aspect ratio of 3/10 to 10/3 (random erasing, arXiv:1708.04896,
  // algorithm 1).
  double erase = 0;
  // Evaluation: edge of the centre crop, as a fraction of the shorter edge.
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

// Returns the crop of the training sample number `position` in the endless sequence of samples. It
// depends only on the arguments.
Crop training_crop(const Augmentation& augmentation, int64_t rows, int64_t cols, uint64_t seed,
                   int64_t position);
Crop evaluation_crop(const Augmentation& augmentation, int64_t rows, int64_t cols);

// Writes the crop, resized to [pixels, pixels, 3]. Uses bilinear interpolation with antialiasing,
// as in PIL and torchvision: a triangle filter that widens when the image shrinks. Gray images get
// three equal channels.
void write_pixels(const Image& image, const Crop& crop, const Augmentation& augmentation,
                  std::span<float> to);

// Writes a training sample: crops, changes and erases the image as `augmentation` says. The result
// depends only on the arguments.
void write_training_pixels(const Image& image, const Augmentation& augmentation, uint64_t seed,
                           int64_t position, std::span<float> to);

}  // namespace shale
