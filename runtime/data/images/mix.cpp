#include "shale/runtime/data/images/mix.h"

#include <algorithm>
#include <cmath>

#include "shale/runtime/data/images/sample_draws.h"

namespace shale {
namespace {

// Draws a random number of the distribution Beta(a, a), by Jöhnk's rejection method. Uses the draws
// numbered `at` and higher.
double draw_beta(double a, const SampleDraws& draws, uint32_t at) {
  for (;; at += 2) {
    // Uses logarithms, because a draw to the power 1 / a may underflow.
    const auto log_of = [&](uint32_t what) {
      return std::log(std::max(double{draws.number(what)}, 0x1p-25)) / a;
    };
    const double x = log_of(at), y = log_of(at + 1);
    if (std::exp(x) + std::exp(y) <= 1) return 1 / (1 + std::exp(y - x));
  }
}

}  // namespace

Mix draw_mix(const MixOptions& options, int64_t pixels, uint64_t seed, int64_t position) {
  if (!options.mixes()) return {};
  const SampleDraws draws(seed, position);
  const bool both = options.mixup > 0 && options.cutmix > 0;
  const bool is_box = both ? draws.number(kDrawMix) < 0.5f : options.cutmix > 0;
  Mix mix{.share = draw_beta(is_box ? options.cutmix : options.mixup, draws, kDrawMix + 4),
          .is_box = is_box};
  if (!is_box) return mix;
  const auto edge = static_cast<int64_t>(static_cast<double>(pixels) * std::sqrt(1 - mix.share));
  // The centre of the box is at a random pixel of the image. What lies outside the image is cut
  // off.
  const auto clipped = [&](uint32_t what) {
    const int64_t middle = draws.below(what, pixels);
    return std::pair(std::max<int64_t>(middle - edge / 2, 0),
                     std::min(middle + (edge + 1) / 2, pixels));
  };
  const auto [top, bottom] = clipped(kDrawMix + 1);
  const auto [left, right] = clipped(kDrawMix + 2);
  mix.row = top, mix.rows = bottom - top, mix.col = left, mix.cols = right - left;
  mix.share = 1 - static_cast<double>(mix.rows * mix.cols) / static_cast<double>(pixels * pixels);
  return mix;
}

void mix_pixels(const Mix& mix, int64_t pixels, std::span<const float> own,
                std::span<const float> other, std::span<float> to) {
  if (!mix.is_box) {
    const auto share = static_cast<float>(mix.share), rest = static_cast<float>(1 - mix.share);
    for (size_t i = 0; i < to.size(); ++i) to[i] = share * own[i] + rest * other[i];
    return;
  }
  if (to.data() != own.data()) std::copy(own.begin(), own.end(), to.begin());
  for (int64_t row = mix.row; row < mix.row + mix.rows; ++row) {
    const int64_t at = (row * pixels + mix.col) * 3;
    std::copy_n(other.data() + at, mix.cols * 3, to.data() + at);
  }
}

void write_softening(const Mix& mix, double label_smoothing, std::pair<int32_t, int32_t> labels,
                     std::span<float> to) {
  const auto own = static_cast<size_t>(labels.first), other = static_cast<size_t>(labels.second);
  const double spread = label_smoothing / static_cast<double>(to.size());
  for (size_t k = 0; k < to.size(); ++k) {
    const double hard = (k == own ? mix.share : 0) + (k == other ? 1 - mix.share : 0);
    const double target = (1 - label_smoothing) * hard + spread;
    to[k] = static_cast<float>((k == own ? 1 : 0) - target);
  }
}

}  // namespace shale
