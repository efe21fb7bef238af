#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

namespace shale::kernels {

// Conversion from a float to an integer: rounds towards zero, limits to T's range, NaN gives 0.
template <typename T>
constexpr T truncated(double x) {
  constexpr auto kLeast = static_cast<double>(std::numeric_limits<T>::min());
  constexpr auto kMost = static_cast<double>(std::numeric_limits<T>::max());
  if (!(x > kLeast)) return x <= kLeast ? std::numeric_limits<T>::min() : T{0};
  return x >= kMost ? std::numeric_limits<T>::max() : static_cast<T>(x);
}

}  // namespace shale::kernels
