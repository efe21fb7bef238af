#pragma once

#include <string_view>

namespace shale::models {

// A subcommand of the program `shale`. To add one: models/tool_x.cpp, a function below, a line in
// the table in models/shale.cpp.
struct Tool {
  std::string_view name;
  std::string_view summary;  // one line for `shale --help`
  // Takes what follows "shale", so that argv[0] is the tool's name. Returns the exit code; throws
  // Error.
  int (*run)(int argc, const char* const* argv);
};

int run_doctor(int argc, const char* const* argv);

}  // namespace shale::models
