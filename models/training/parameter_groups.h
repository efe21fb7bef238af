#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "shale/runtime/optim/shard.h"

namespace shale::models {

// Options of the parameters whose names match a pattern.
struct ParameterGroup {
  std::string pattern;  // pattern of select_parameters()
  ParameterOptions options;
};

// Parses --param-groups, "PATTERN:lr=FACTOR,decay=DECAY;PATTERN:...". A group may omit lr or decay.
// Throws ConfigError, which names the group, for invalid text.
std::vector<ParameterGroup> parse_parameter_groups(std::string_view text);

}  // namespace shale::models
