#pragma once

#include <cstdint>
#include <span>
#include <utility>

namespace shale {

// Mixing of training samples in pairs, and label smoothing.
struct MixOptions {
  // Parameter a of the distribution Beta(a, a) from which the sample's own share is drawn; 0: off.
  // mixup averages two images (arXiv:1710.09412). cutmix pastes a box of the other image
  // (arXiv:1905.04899); the share is then the exact area. If both are on, each is used with
  // probability 1/2.
  double mixup = 0;
  double cutmix = 0;
  // Part of each target that is spread evenly over all classes (arXiv:1512.00567).
  double label_smoothing = 0;

  bool mixes() const { return mixup > 0 || cutmix > 0; }
  bool is_soft() const { return mixes() || label_smoothing > 0; }
};
// Limit of mixup and cutmix, because higher values take longer to draw.
inline constexpr double kMostMixing = 4;

// How to mix two samples. The other sample contributes a box of pixels (cutmix), or to an average.
struct Mix {
  double share = 1;
  bool is_box = false;
  int64_t row = 0, col = 0, rows = 0, cols = 0;
};

// Returns the mix of the sample at a position, for images of pixels x pixels. It depends only on
// the arguments.
Mix draw_mix(const MixOptions& options, int64_t pixels, uint64_t seed, int64_t position);
// Returns the position of the sample to mix with: the other one of its pair.
constexpr int64_t mix_partner(int64_t position) {
  return position ^ 1;
}

// Writes the mix of own and other, [pixels, pixels, 3]; `to` may be `own`.
void mix_pixels(const Mix& mix, int64_t pixels, std::span<const float> own,
                std::span<const float> other, std::span<float> to);

// Writes one number per class: the one-hot target of the sample's label minus these numbers is the
// mixed and smoothed target. labels: of the sample, and of the one it is mixed with.
void write_softening(const Mix& mix, double label_smoothing, std::pair<int32_t, int32_t> labels,
                     std::span<float> to);

}  // namespace shale
