#pragma once

#include <cstdint>
#include <vector>

namespace shale {

// Filter for resizing a line of samples.
enum class ResampleFilter {
  kTriangle,  // bilinear
  kCubic,     // bicubic with coefficient -1/2 (Keys 1981, equation 4)
};

// One output sample as a weighted sum of the input samples from `begin` on.
struct Taps {
  int64_t begin = 0;
  std::vector<float> weights;
};

// Returns the taps that resize a line from `from` samples to `to` samples; both are at least 1.
// When the line shrinks, the filter widens. This is antialiasing, as in PIL and torch's
// interpolate(antialias=True).
std::vector<Taps> resample_taps(int64_t from, int64_t to, ResampleFilter filter);

// Resizes a square table from [from_edge, from_edge, width] to [to_edge, to_edge, width]; both are
// dense f32.
void resample_square(const float* from, int64_t from_edge, float* to, int64_t to_edge,
                     int64_t width, ResampleFilter filter);

}  // namespace shale
