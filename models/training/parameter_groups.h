#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "shale/runtime/optim/shard.h"

namespace shale::models {

// Options of the parameters whose names match a pattern.
struct ParameterGroup {
  std::string pattern;  // in the syntax of select_parameters()
  ParameterOptions options;
};

// Parses --param-groups, "PATTERN:lr=FACTOR,decay=DECAY;PATTERN:..."; keys may be omitted. Throws
// ConfigError, naming the group, for invalid text.
std::vector<ParameterGroup> parse_parameter_groups(std::string_view text);

}  // namespace shale::models
