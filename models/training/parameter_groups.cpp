#include "shale/models/training/parameter_groups.h"

#include <limits>
#include <optional>

#include "shale/base/error.h"
#include "shale/base/parse.h"

namespace shale::models {
namespace {

// Removes the text up to the separator, and the separator, from the front of `text`. Returns the
// removed text without the separator.
std::string_view take(std::string_view& text, char separator) {
  const size_t end = text.find(separator);
  const std::string_view part = text.substr(0, end);
  text = end == text.npos ? std::string_view() : text.substr(end + 1);
  return part;
}

[[noreturn]] void fail(std::string_view group, std::string_view want) {
  throw ConfigError(cat("--param-groups: \"", excerpt(group), "\", expected ", want));
}

ParameterGroup parse_group(std::string_view group) {
  std::string_view rest = group;
  const std::string_view pattern = take(rest, ':');
  if (pattern.empty() || rest.empty()) fail(group, "\"PATTERN:lr=FACTOR,decay=DECAY\"");
  ParameterGroup parsed{.pattern = std::string(pattern), .options = {}};
  bool has_rate = false;
  while (!rest.empty()) {
    const std::string_view setting = take(rest, ',');
    std::string_view text = setting;
    const std::string_view key = take(text, '=');
    const bool is_rate = key == "lr", is_decay = key == "decay";
    if (!is_rate && !is_decay) fail(group, cat("lr or decay, not \"", excerpt(key), "\""));
    const bool is_second = is_rate ? has_rate : parsed.options.weight_decay.has_value();
    if (is_second) fail(group, cat("one ", key));
    const std::optional<double> number = parse_real(text);
    constexpr double kMax = std::numeric_limits<float>::max();
    if (!number || *number < 0 || *number > kMax) fail(group, cat("a number from 0 up for ", key));
    if (is_rate) parsed.options.lr_factor = static_cast<float>(*number);
    if (is_decay) parsed.options.weight_decay = static_cast<float>(*number);
    has_rate = has_rate || is_rate;
  }
  return parsed;
}

}  // namespace

std::vector<ParameterGroup> parse_parameter_groups(std::string_view text) {
  std::vector<ParameterGroup> groups;
  while (!text.empty()) groups.push_back(parse_group(take(text, ';')));
  return groups;
}

}  // namespace shale::models
