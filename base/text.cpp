#include "shale/base/text.h"

#include <array>
#include <cstdio>
#include <cstdlib>

namespace shale {

namespace {

std::string print(const char* format, double value) {
  std::array<char, 40> buffer{};
  std::snprintf(buffer.data(), buffer.size(), format, value);
  return buffer.data();
}

}  // namespace

std::string to_string(double value) {
  const std::string text = print("%.6g", value);
  return std::strtod(text.c_str(), nullptr) == value ? text : print("%.17g", value);
}

std::string to_string(float value) {
  const std::string text = print("%.6g", double(value));
  return std::strtof(text.c_str(), nullptr) == value ? text : print("%.9g", double(value));
}

std::string format_number(double value) {
  return print("%.6g", value);
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
