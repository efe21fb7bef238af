#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace shale::kernels {

// The 256 numbers that 8-bit codes stand for in dynamic quantization (arXiv:2110.02861, section
// 1.3), in ascending order: a code is an index. They cover seven decades. Decade i, [10^(i-7),
// 10^(i-6)] for i from 0 to 6, is divided into 2^i equal intervals (2^(i+1) without signs), and has
// the midpoints of these. So smaller numbers are spaced more coarsely relative to their size. With
// signs, the negatives of the midpoints are added. 0 and 1 are added too.
struct DynamicMap {
  std::array<float, 256> levels{};
  int zero = 0;  // the code of 0
};

constexpr DynamicMap make_dynamic_map(bool is_signed) {
  DynamicMap map;
  size_t count = 0;
  map.levels[count++] = 0;
  map.levels[count++] = 1;
  double top = 1e-6;
  for (int decade = 0; decade < 7; ++decade, top *= 10) {
    const int intervals = 1 << (is_signed ? decade : decade + 1);
    for (int i = 0; i < intervals; ++i) {
      const double middle = 0.1 + 0.9 * (i + 0.5) / intervals;
      map.levels[count++] = static_cast<float>(top * middle);
      if (is_signed) map.levels[count++] = static_cast<float>(-top * middle);
    }
  }
  std::sort(map.levels.begin(), map.levels.end());
  map.zero = is_signed ? 127 : 0;
  return map;
}

inline constexpr DynamicMap kSignedMap = make_dynamic_map(true);
inline constexpr DynamicMap kUnsignedMap = make_dynamic_map(false);

}  // namespace shale::kernels
