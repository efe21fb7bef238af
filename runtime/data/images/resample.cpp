#include "shale/runtime/data/images/resample.h"

#include <algorithm>
#include <cmath>

namespace shale {
namespace {

double weight_at(double distance, ResampleFilter filter) {
  if (filter == ResampleFilter::kTriangle) return std::max(1 - distance, 0.0);
  constexpr double kA = -0.5;
  if (distance < 1) return ((kA + 2) * distance - (kA + 3)) * distance * distance + 1;
  if (distance < 2) return (((distance - 5) * distance + 8) * distance - 4) * kA;
  return 0;
}

}  // namespace

std::vector<Taps> resample_taps(int64_t from, int64_t to, ResampleFilter filter) {
  const double ratio = static_cast<double>(from) / static_cast<double>(to);
  const double unit = std::max(ratio, 1.0);
  const double reach = unit * (filter == ResampleFilter::kCubic ? 2 : 1);
  std::vector<Taps> all(static_cast<size_t>(to));
  for (int64_t i = 0; i < to; ++i) {
    const double center = (static_cast<double>(i) + 0.5) * ratio;
    const auto begin = std::max<int64_t>(static_cast<int64_t>(std::floor(center - reach)), 0);
    const auto end = std::min(static_cast<int64_t>(std::ceil(center + reach)), from);
    std::vector<double> weights;
    double sum = 0;
    for (int64_t k = begin; k < end; ++k) {
      weights.push_back(weight_at(std::abs(static_cast<double>(k) + 0.5 - center) / unit, filter));
      sum += weights.back();
    }
    Taps& taps = all[static_cast<size_t>(i)];
    taps.begin = begin;
    for (const double weight : weights) taps.weights.push_back(static_cast<float>(weight / sum));
  }
  return all;
}

void resample_square(const float* from, int64_t from_edge, float* to, int64_t to_edge,
                     int64_t width, ResampleFilter filter) {
  const std::vector<Taps> taps = resample_taps(from_edge, to_edge, filter);
  // Adds up weighted samples of `width` elements, with a stride of `step` elements between samples.
  const auto add_up = [&](const Taps& some, const float* line, int64_t step, float* sum) {
    std::fill_n(sum, width, 0.f);
    for (size_t k = 0; k < some.weights.size(); ++k) {
      const float* sample = line + (some.begin + static_cast<int64_t>(k)) * step;
      for (int64_t c = 0; c < width; ++c) sum[c] += some.weights[k] * sample[c];
    }
  };
  std::vector<float> across(static_cast<size_t>(from_edge * to_edge * width));
  for (int64_t row = 0; row < from_edge; ++row) {
    for (int64_t col = 0; col < to_edge; ++col) {
      add_up(taps[static_cast<size_t>(col)], from + row * from_edge * width, width,
             across.data() + (row * to_edge + col) * width);
    }
  }
  for (int64_t row = 0; row < to_edge; ++row) {
    for (int64_t col = 0; col < to_edge; ++col) {
      add_up(taps[static_cast<size_t>(row)], across.data() + col * width, to_edge * width,
             to + (row * to_edge + col) * width);
    }
  }
}

}  // namespace shale
