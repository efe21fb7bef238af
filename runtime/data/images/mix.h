#pragma once

#include <cstdint>
#include <span>
#include <utility>

namespace shale {

// Mixing of training samples in pairs, and label smoothing.
struct MixOptions {
  // Parameter a of the distribution Beta(a, a); 0: off. The number drawn is the weight of the
  // sample itself. mixup averages two images (arXiv:1710.09412). cutmix pastes a box of the other
  // image (arXiv:1905.04899); the weight is then the exact fraction of the area. If both are on,
  // each is used with probability 1/2.
  double mixup = 0;
  double cutmix = 0;
  // Fraction of each target that is spread evenly over all classes (arXiv:1512.00567).
  double label_smoothing = 0;

  bool mixes() const { return mixup > 0 || cutmix > 0; }
  bool is_soft() const { return mixes() || label_smoothing > 0; }
};
// Maximum of mixup and cutmix, because drawing takes longer for higher values.
inline constexpr double kMostMixing = 4;

// Says how to mix a sample with another one. is_box: pastes a box of the other image (cutmix); else
// averages the two with weight `share` for the sample itself.
struct Mix {
  double share = 1;
  bool is_box = false;
  int64_t row = 0, col = 0, rows = 0, cols = 0;
};

// Returns the mix of the sample at a position, for images of pixels x pixels. It depends only on
// the arguments.
Mix draw_mix(const MixOptions& options, int64_t pixels, uint64_t seed, int64_t position);
// Returns the position of the other sample of the pair.
constexpr int64_t mix_partner(int64_t position) {
  return position ^ 1;
}

// Writes the mix of two images `own` and `other`, [pixels, pixels, 3]. `to` may be `own`.
void mix_pixels(const Mix& mix, int64_t pixels, std::span<const float> own,
                std::span<const float> other, std::span<float> to);

// Writes one number per class. The one-hot target of the sample's label minus these numbers is the
// mixed and smoothed target. labels: label of the sample, label of the other sample.
void write_softening(const Mix& mix, double label_smoothing, std::pair<int32_t, int32_t> labels,
                     std::span<float> to);

}  // namespace shale
