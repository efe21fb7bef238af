#include "shale/models/tools/tool_table.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <vector>

#include "shale/base/config.h"
#include "shale/base/error.h"
#include "shale/base/parse.h"

namespace shale::models {
namespace {

// Returns the placeholder in usage lines, such as "TOOL" for "tool".
std::string placeholder(std::string_view what) {
  std::string text(what);
  for (char& c : text) c = static_cast<char>(c - 'a' + 'A');
  return text;
}

std::string help(const ToolTable& table) {
  const std::string any = placeholder(table.what);
  size_t width = 0;
  for (const Tool& tool : table.tools) width = std::max(width, tool.name.size());
  std::string text = cat(table.program, ": ", table.summary, "\n\nUsage: ", table.program, " ", any,
                         " [FLAGS]\n\n");
  for (const Tool& tool : table.tools) {
    text +=
        cat("  ", tool.name, std::string(width + 2 - tool.name.size(), ' '), tool.summary, "\n");
  }
  return cat(text, "\n", table.program, " ", any, " --help lists its flags.",
             table.closing.empty() ? "" : " ", table.closing, "\n");
}

std::string version(std::string_view program) {
  ConfigSpec spec{std::string(program), ""};
  const std::array arguments = {"", "--version"};
  return parse_config(spec, static_cast<int>(arguments.size()), arguments.data()).output;
}

// Prints the tools of a program, one per line, in the format of --help (base/config_internal.h).
void print_table(const ToolTable& table) {
  std::printf("%s\tsummary\t\t\t\t%s\t\n", std::string(table.program).c_str(),
              std::string(table.summary).c_str());
  for (const Tool& tool : table.tools) {
    std::printf("%s\ttool\t%s\t\t\t%s\t\n", std::string(table.program).c_str(),
                std::string(tool.name).c_str(), std::string(tool.summary).c_str());
  }
  for (const Tool& tool : table.tools) {
    const std::array arguments = {"", "--help", "table"};
    tool.run(static_cast<int>(arguments.size()), arguments.data());
  }
}

const Tool& find_tool(const ToolTable& table, std::string_view name) {
  std::vector<std::string> names;
  for (const Tool& tool : table.tools) {
    if (tool.name == name) return tool;
    names.emplace_back(tool.name);
  }
  for (const auto& [synonym, use] : table.synonyms) {
    if (synonym != name) continue;
    throw ConfigError(cat(table.program, ": unknown ", table.what, " '", name, "'; use ", use));
  }
  const auto nearest = nearest_name(name, names);
  throw ConfigError(cat(table.program, ": unknown ", table.what, " '", excerpt(name), "'",
                        nearest ? cat("; did you mean ", *nearest, "?")
                                : cat("; ", table.program, " --help lists them")));
}

}  // namespace

bool parse_or_print(ConfigSpec& spec, int argc, const char* const* argv) {
  const ParseResult parsed = parse_config(spec, argc, argv);
  if (parsed.should_exit) std::fputs(parsed.output.c_str(), stdout);
  return parsed.should_exit;
}

bool parse_or_print(ConfigSpec& spec, int argc, const char* const* argv,
                    std::vector<std::string>& paths) {
  int i = 1;
  for (; i < argc && (argv[i][0] != '-' || argv[i][1] == '\0'); ++i) {
    if (!names_a_path(argv[i])) {
      throw ConfigError(cat("expected a path: not empty, and without control characters, found '",
                            excerpt(argv[i]), "'"));
    }
    paths.emplace_back(argv[i]);
  }
  std::vector<const char*> flags = {argv[0]};
  flags.insert(flags.end(), argv + i, argv + argc);
  return parse_or_print(spec, static_cast<int>(flags.size()), flags.data());
}

int run_tool(const ToolTable& table, int argc, const char* const* argv) {
  if (argc < 2) {
    std::fputs(help(table).c_str(), stderr);
    const bool has_vowel = std::string_view("aeiou").find(table.what.front()) != std::string::npos;
    throw ConfigError(
        cat(table.program, ": expected ", has_vowel ? "an " : "a ", table.what, ", found nothing"));
  }
  const std::string_view first = argv[1];
  if (first == "--help" && argc > 2 && std::string_view(argv[2]) == "table") {
    print_table(table);
    return 0;
  }
  if (first == "--help" || first == "-h" || first == "help") {
    std::fputs(help(table).c_str(), stdout);
    return 0;
  }
  if (first == "--version") {
    std::fputs(version(table.program).c_str(), stdout);
    return 0;
  }
  return find_tool(table, first).run(argc - 1, argv + 1);
}

}  // namespace shale::models
