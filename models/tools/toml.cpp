#include <toml++/toml.h>

#include <cmath>
#include <sstream>

#include "shale/base/error.h"
#include "shale/base/json.h"
#include "shale/base/parse.h"
#include "shale/models/tools/config_import.h"

namespace shale::models {
namespace {

// Limit of dots in a line. The library limits the nesting of arrays and inline tables, but not the
// parts of a dotted key, which are nested tables too and are freed recursively.
constexpr int kMaxDotsInLine = 128;

void check_dots(std::string_view text, const std::string& source) {
  int64_t line = 1;
  int dots = 0;
  for (const char c : text) {
    if (c == '\n') {
      ++line;
      dots = 0;
    } else if (c == '.' && ++dots > kMaxDotsInLine) {
      throw DataError(
          cat(source, ":", line, ": expected at most ", kMaxDotsInLine, " dots, found more"));
    }
  }
}

Json json_of(const toml::node& node, const std::string& source, int depth = 0) {
  const auto fail = [&](std::string_view want, std::string_view found) {
    throw DataError(
        cat(source, ":", node.source().begin.line, ": expected ", want, ", found ", found));
  };
  constexpr int kMaxDepth = JsonLimits{}.max_depth;
  if (depth > kMaxDepth) fail(cat("at most ", kMaxDepth, " tables inside each other"), "more");
  if (const toml::table* table = node.as_table()) {
    Json object = Json::object();
    for (const auto& [key, value] : *table) {
      object[std::string(key.str())] = json_of(value, source, depth + 1);
    }
    return object;
  }
  if (const toml::array* array = node.as_array()) {
    Json list = Json::array();
    for (const toml::node& value : *array) list.push_back(json_of(value, source, depth + 1));
    return list;
  }
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* flag = node.as_boolean()) return flag->get();
  if (const auto* number = node.as_integer()) return number->get();
  std::ostringstream text;
  text << toml::node_view(node);
  if (const auto* number = node.as_floating_point()) {
    if (!std::isfinite(number->get())) fail("a finite number", text.str());
    return number->get();
  }
  return text.str();  // text of a date, a time, or both
}

}  // namespace

Json parse_toml(std::string_view text, const std::string& source) {
  check_dots(text, source);
  try {
    return json_of(toml::parse(text), source);
  } catch (const toml::parse_error& error) {
    throw DataError(cat(source, ":", error.source().begin.line,
                        ": not valid TOML: ", excerpt(error.description(), 300)));
  }
}

}  // namespace shale::models
