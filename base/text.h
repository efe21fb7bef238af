#pragma once

#include <string>
#include <string_view>
#include <type_traits>

namespace shale {

inline std::string to_string(std::string_view text) {
  return std::string(text);
}
inline std::string to_string(bool value) {
  return value ? "true" : "false";
}
// The shorter of six digits and all digits (17, or 9 of a float) that reads back the same.
std::string to_string(double value);
std::string to_string(float value);

// Concatenates the arguments' texts: cat("weight is ", shape, ", expected ", 3). Types of other
// headers join by a to_string() next to them.
template <typename... Args>
std::string cat(const Args&... args) {
  std::string out;
  const auto append = [&out](const auto& arg) {
    using T = std::decay_t<decltype(arg)>;
    if constexpr (std::is_convertible_v<const T&, std::string_view>) {
      out += std::string_view(arg);
    } else if constexpr (std::is_same_v<T, char>) {
      out += arg;
    } else if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      out += std::to_string(arg);
    } else if constexpr (std::is_floating_point_v<T>) {
      out += to_string(arg);
    } else {
      out += to_string(arg);
    }
  };
  (append(args), ...);
  return out;
}

// Six significant digits, "0.333333": for people, who do not read it back.
std::string format_number(double value);
// "1.5 GiB", "512 MiB", "17 B": for people.
std::string format_bytes(double bytes);

}  // namespace shale
