#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shale/base/config.h"

namespace shale::models {

// Subcommand of a program, chosen by its first argument.
struct Tool {
  std::string_view name;
  std::string_view summary;  // one line for --help
  // Runs the tool. argv[0] is the tool's name, and its arguments follow. Returns the exit code;
  // throws Error.
  int (*run)(int argc, const char* const* argv);
};

struct ToolTable {
  std::string_view program;  // name that users type, such as "shale ckpt"
  std::string_view summary;  // the first line of --help
  std::string_view what;     // noun for its subcommands in lower case, such as "tool" or "action"
  std::string_view closing;  // the last lines of --help
  std::span<const Tool> tools;
  // Names that other programs have for subcommands, and the advice in the error message for each.
  std::span<const std::pair<std::string_view, std::string_view>> synonyms = {};
};

// Runs the tool that argv[1] names; --help lists all tools. Throws ConfigError, with the nearest
// name, if there is no such tool or none is given.
int run_tool(const ToolTable& table, int argc, const char* const* argv);

// Parses the arguments. Returns true if they only request output such as --help, which it prints.
bool parse_or_print(ConfigSpec& spec, int argc, const char* const* argv);
// Also accepts any number of paths before the flags, and stores them in `paths`.
bool parse_or_print(ConfigSpec& spec, int argc, const char* const* argv,
                    std::vector<std::string>& paths);

}  // namespace shale::models
