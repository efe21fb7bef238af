#pragma once

#include <chrono>

namespace shale {

// Returns the seconds that have passed since this time.
inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace shale
