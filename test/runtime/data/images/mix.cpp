#include "shale/runtime/data/images/mix.h"

#include <cmath>
#include <numeric>
#include <vector>

#include "shale/test/support/catch.h"

namespace shale::test {

TEST_CASE("shares of mixup have the moments of their Beta distribution") {
  for (const double a : {0.2, 1.0, 3.0}) {
    CAPTURE(a);
    constexpr int kDraws = 4000;
    double sum = 0, squares = 0;
    for (int64_t position = 0; position < kDraws; ++position) {
      const Mix mix = draw_mix({.mixup = a}, 8, 1, position);
      CHECK(mix.share == draw_mix({.mixup = a}, 8, 1, position).share);
      REQUIRE(mix.share >= 0);
      REQUIRE(mix.share <= 1);
      CHECK_FALSE(mix.is_box);
      sum += mix.share, squares += mix.share * mix.share;
    }
    const double mean = sum / kDraws, variance = squares / kDraws - mean * mean;
    const double want = 1 / (4 * (2 * a + 1));
    // The limits are five standard deviations of the mean, and a tenth of the variance.
    CHECK(std::abs(mean - 0.5) < 5 * std::sqrt(want / kDraws));
    CHECK(variance == Approx(want).epsilon(0.1));
  }
}

TEST_CASE("a box of cutmix lies in the picture, and its area is the other's share") {
  constexpr int64_t kPixels = 9;
  const auto count = size_t(kPixels * kPixels * 3);
  const std::vector<float> own(count, 1.f), other(count, 2.f);
  int boxes = 0;
  for (int64_t position = 0; position < 400; ++position) {
    const Mix mix = draw_mix({.mixup = 0.2, .cutmix = 1}, kPixels, 7, position);
    std::vector<float> mixed(count);
    mix_pixels(mix, kPixels, own, other, mixed);
    const double mean = std::accumulate(mixed.begin(), mixed.end(), 0.0) / double(count);
    CHECK(mean == Approx(mix.share + 2 * (1 - mix.share)).epsilon(1e-6));
    boxes += mix.is_box ? 1 : 0;
    if (!mix.is_box) continue;
    for (const float value : mixed) CHECK((value == 1 || value == 2));
  }
  CHECK(boxes > 150);  // 200 expected; the margin is five standard deviations of 10
  CHECK(boxes < 250);
}

TEST_CASE("softened targets are those of timm's formula") {
  // Four classes and a smoothing of 0.2: each class gets 0.05, and the labels' classes share the
  // other 0.8.
  std::vector<float> softening(4);
  const auto targets = [&](const Mix& mix, double smoothing, std::pair<int32_t, int32_t> labels) {
    write_softening(mix, smoothing, labels, softening);
    std::vector<double> target;
    for (size_t k = 0; k < 4; ++k) {
      target.push_back((k == size_t(labels.first) ? 1 : 0) - double{softening[k]});
    }
    return target;
  };
  const auto check = [](const std::vector<double>& got, const std::vector<double>& want) {
    for (size_t k = 0; k < 4; ++k) CHECK(got[k] == Approx(want[k]).margin(1e-7));
  };
  check(targets({.share = 0.75}, 0.2, {1, 3}), {0.05, 0.65, 0.05, 0.25});
  check(targets({.share = 0.75}, 0.2, {2, 2}), {0.05, 0.05, 0.85, 0.05});
  check(targets({}, 0.2, {0, 0}), {0.85, 0.05, 0.05, 0.05});
  check(targets({.share = 0.25}, 0, {0, 3}), {0.25, 0, 0, 0.75});
}

}  // namespace shale::test
