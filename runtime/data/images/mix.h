#pragma once

#include <cstdint>
#include <span>
#include <utility>

namespace shale {

// How training samples are mixed with another one, and targets softened.
struct MixOptions {
  // Of the Beta distributions (a, a) from which the own share is drawn: of two pictures that are
  // averaged (mixup, arXiv:1710.09412), and of one with a box of the other (cutmix,
  // arXiv:1905.04899), whose area is exact then. 0: not so; with both, either is as likely.
  double mixup = 0;
  double cutmix = 0;
  double label_smoothing = 0;  // of the targets, spread over all classes (arXiv:1512.00567)

  bool mixes() const { return mixup > 0 || cutmix > 0; }
  bool is_soft() const { return mixes() || label_smoothing > 0; }
};
inline constexpr double kMostMixing = 4;  // of mixup and cutmix: draws take longer the more it is

// What a sample has of its own; the rest is the other one's, in a box of pixels if this is cutmix.
struct Mix {
  double share = 1;
  bool is_box = false;
  int64_t row = 0, col = 0, rows = 0, cols = 0;
};

// Of the sample at a position, of pictures of pixels x pixels: a function of these arguments alone.
Mix draw_mix(const MixOptions& options, int64_t pixels, uint64_t seed, int64_t position);
// The position of the sample that it is mixed with: the other one of its pair.
constexpr int64_t mix_partner(int64_t position) {
  return position ^ 1;
}

// Writes own and other, [pixels, pixels, 3], as they are mixed; `to` may be `own`.
void mix_pixels(const Mix& mix, int64_t pixels, std::span<const float> own,
                std::span<const float> other, std::span<float> to);

// Writes what is to be subtracted from the target that is 1 for `label`, a number for each class,
// so that it becomes the mixed and smoothed one. labels: of the sample, and of the one it is mixed
// with.
void write_softening(const Mix& mix, double label_smoothing, std::pair<int32_t, int32_t> labels,
                     std::span<float> to);

}  // namespace shale
