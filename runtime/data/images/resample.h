#pragma once

#include <cstdint>
#include <vector>

namespace shale {

// What is made of a line of samples when it becomes longer or shorter.
enum class ResampleFilter {
  kTriangle,  // bilinear
  kCubic,     // bicubic, of the coefficient -1/2 (Keys 1981, equation 4)
};

// A sample of a result as a weighted sum of samples [begin, begin + weights) of a line.
struct Taps {
  int64_t begin = 0;
  std::vector<float> weights;
};

// For a line of `from` samples that becomes one of `to`, both at least 1. The filter is as wide as
// what is made shorter, which is antialiasing as PIL, and torch's interpolate(antialias=True), do
// it.
std::vector<Taps> resample_taps(int64_t from, int64_t to, ResampleFilter filter);

// Resamples a square table: from [from_edge, from_edge, width] to [to_edge, to_edge, width], dense
// f32 both.
void resample_square(const float* from, int64_t from_edge, float* to, int64_t to_edge,
                     int64_t width, ResampleFilter filter);

}  // namespace shale
