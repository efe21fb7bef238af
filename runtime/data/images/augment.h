#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "shale/runtime/data/images/image.h"

namespace shale {

// How pictures become what a model is given: square, of three channels, and normalised.
struct Augmentation {
  int64_t pixels = 224;  // of the edge of what the model is given
  // Training: a crop of this share of the area at least, of an aspect ratio of 3/4 to 4/3, resized
  // (arXiv:1409.4842, section 6); 1: the whole picture. Mirrored with this probability.
  double crop_area = 0.08;
  double mirror = 0.5;
  // Training, after that: so many changes (change_image()) of this strength, drawn from all of
  // them, of what has 8 bits again (arXiv:1909.13719); 0: none.
  int64_t changes = 0;
  int64_t strength = 9;  // 0 to kStrongestChange
  // And with this probability a box that is 0 once normalised, of 1/50 to 1/3 of the area and an
  // aspect ratio of 3/10 to 10/3 (arXiv:1708.04896, algorithm 1).
  double erase = 0;
  // Evaluation: the square in the middle whose edge is this share of the shorter one.
  double center_share = 0.875;
  // (value - mean) / deviation, of values from 0 to 1, by channel.
  std::array<float, 3> mean = {0.485f, 0.456f, 0.406f};
  std::array<float, 3> deviation = {0.229f, 0.224f, 0.225f};
};

// The part of a picture that is taken, in pixels, and whether it is mirrored.
struct Crop {
  int64_t row = 0, col = 0, rows = 0, cols = 0;
  bool mirrored = false;
  friend bool operator==(const Crop&, const Crop&) = default;
};

// Of the sample at a position of the endless sequence of training samples: a function of these
// arguments alone.
Crop training_crop(const Augmentation& augmentation, int64_t rows, int64_t cols, uint64_t seed,
                   int64_t position);
Crop evaluation_crop(const Augmentation& augmentation, int64_t rows, int64_t cols);

// Writes the crop, resized with a triangle filter as wide as what is made smaller (the bilinear
// filter with antialiasing of PIL and torchvision), to [pixels, pixels, 3]; gray counts as three
// equal channels.
void write_pixels(const Image& image, const Crop& crop, const Augmentation& augmentation,
                  std::span<float> to);

// What a model is trained on: the crop of this sample, changed, and with a box erased, as the
// augmentation asks for. Like training_crop() a function of its arguments alone.
void write_training_pixels(const Image& image, const Augmentation& augmentation, uint64_t seed,
                           int64_t position, std::span<float> to);

}  // namespace shale
