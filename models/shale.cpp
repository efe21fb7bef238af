// The program `shale`: one tool with subcommands.
#include <algorithm>
#include <array>
#include <cstdio>
#include <new>
#include <string>
#include <vector>

#include "models/tools.h"
#include "runtime/base/config.h"
#include "runtime/base/error.h"
#include "runtime/base/parse.h"

namespace shale::models {
namespace {

constexpr std::array kTools = {
    Tool{"doctor", "says what this machine offers to training, what is missing, and the way out",
         run_doctor},
};

std::string help() {
  std::string text =
      "shale: tools for machines, runs and checkpoints\n\nUsage: shale TOOL [FLAGS]\n\nTools\n";
  for (const Tool& tool : kTools) {
    text += cat("  ", tool.name, std::string(10 - tool.name.size(), ' '), tool.summary, "\n");
  }
  return text +
         "\nshale TOOL --help lists the flags of a tool. train_lm is a program of its own.\n";
}

std::string version() {
  ConfigSpec spec("shale", "");
  const std::array arguments = {"shale", "--version"};
  return parse_config(spec, static_cast<int>(arguments.size()), arguments.data()).output;
}

const Tool& find_tool(std::string_view name) {
  const auto found = std::find_if(kTools.begin(), kTools.end(),
                                  [&](const Tool& tool) { return tool.name == name; });
  if (found != kTools.end()) return *found;
  std::vector<std::string> names;
  for (const Tool& tool : kTools) names.emplace_back(tool.name);
  const auto nearest = nearest_name(name, names);
  throw ConfigError(
      cat("shale: unknown tool '", excerpt(name), "'",
          nearest ? cat("; did you mean ", *nearest, "?") : "; shale --help lists the tools"));
}

int run_tool(int argc, const char* const* argv) {
  if (argc < 2) {
    std::fputs(help().c_str(), stderr);
    throw ConfigError("shale: expected a tool, found nothing");
  }
  const std::string_view first = argv[1];
  if (first == "--help" || first == "-h" || first == "help") {
    std::fputs(help().c_str(), stdout);
    return 0;
  }
  if (first == "--version") {
    std::fputs(version().c_str(), stdout);
    return 0;
  }
  return find_tool(first).run(argc - 1, argv + 1);
}

int fail(ExitCode code, const char* message) {
  std::fflush(stdout);
  std::fprintf(stderr, "error: %s\n", message);
  return static_cast<int>(code);
}

}  // namespace

}  // namespace shale::models

int main(int argc, char** argv) {
  using shale::ExitCode;
  using shale::models::fail;
  try {
    return shale::models::run_tool(argc, argv);
  } catch (const shale::Error& error) {
    return fail(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    return fail(ExitCode::kOutOfMemory, "out of memory");
  } catch (const std::exception& error) {
    return fail(ExitCode::kInternal, error.what());
  }
}
