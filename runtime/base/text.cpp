#include "runtime/base/text.h"

#include <array>
#include <cstdio>
#include <cstdlib>

namespace shale {

std::string to_string(double value) {
  std::array<char, 40> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%.6g", value);
  if (std::strtod(buffer.data(), nullptr) != value) {
    std::snprintf(buffer.data(), buffer.size(), "%.17g", value);
  }
  return buffer.data();
}

std::string format_bytes(double bytes) {
  static constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < kUnits.size()) {
    bytes /= 1024;
    ++unit;
  }
  std::array<char, 40> buffer{};
  std::snprintf(buffer.data(), buffer.size(), unit == 0 || bytes >= 100 ? "%.0f %s" : "%.1f %s",
                bytes, kUnits[unit]);
  return buffer.data();
}

}  // namespace shale
