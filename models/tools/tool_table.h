#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace shale::models {

// One of several things that a program does, chosen by its first argument.
struct Tool {
  std::string_view name;
  std::string_view summary;  // one line for --help
  // Takes what follows the program's name, so that argv[0] is the tool's. Returns the exit code;
  // throws Error.
  int (*run)(int argc, const char* const* argv);
};

struct ToolTable {
  std::string_view program;  // as users type it: "shale ckpt"
  std::string_view summary;  // the first line of --help
  std::string_view what;     // a tool is called: "tool", "action"; small letters
  std::string_view closing;  // the last lines of --help
  std::span<const Tool> tools;
};

// Runs the tool that argv[1] names; --help lists them all. Throws ConfigError if there is no such
// tool, with the nearest name, or none is given.
int run_tool(const ToolTable& table, int argc, const char* const* argv);

// What a tool takes any number of: the arguments before the first flag, and the rest, for
// parse_config(), which begins with argv[0].
std::vector<std::string> take_arguments(int argc, const char* const* argv);
std::vector<const char*> flags_of(int argc, const char* const* argv);

}  // namespace shale::models
