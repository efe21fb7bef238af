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
// Returns the shortest decimal text of at least six digits' precision that reads back as `value`.
std::string to_string(double value);
std::string to_string(float value);

// Joins the texts of the arguments: cat("weight is ", shape, ", expected ", 3). A type of another
// header works if it has a to_string() next to it.
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

// Formats a number with six significant digits, "0.333333". For people, because it does not read
// back exactly.
std::string format_number(double value);
// Size for people: "1.5 GiB", "512 MiB", "17 B".
std::string format_bytes(double bytes);

}  // namespace shale
