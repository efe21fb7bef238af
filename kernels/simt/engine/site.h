#pragma once

#include <string>
#include <string_view>

namespace shale::emulator {

// A place in a kernel's source: a substitute for std::source_location, which clang 14 lacks.
struct Site {
  const char* file = "";
  const char* function = "";
  int line = 0;

  static constexpr Site current(const char* file = __builtin_FILE(),
                                const char* function = __builtin_FUNCTION(),
                                int line = __builtin_LINE()) {
    return {file, function, line};
  }
  friend constexpr bool operator==(const Site& a, const Site& b) {
    return a.line == b.line && (a.file == b.file || std::string_view(a.file) == b.file);
  }
};

std::string to_string(const Site& site);  // "elementwise/elementwise.cu:31"

}  // namespace shale::emulator
