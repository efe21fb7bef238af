#pragma once

#include <cstdio>
#include <string>
#include <string_view>

#include "shale/base/error.h"
#include "shale/base/parse.h"

namespace shale::models {

inline constexpr double kProgress_s = 15;  // time between two lines of a tool that waits

// Prints "shale run: ", or another tool's name, and the text to standard error in one write.
inline void say(std::string_view text, std::string_view tool = "run") {
  const std::string line = cat("shale ", tool, ": ", printable(text), "\n");
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace shale::models
