#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "shale/runtime/optim/shard.h"

namespace shale::models {

// Parameters that are treated alike, by their names.
struct ParameterGroup {
  std::string pattern;  // as select_parameters() takes it
  ParameterOptions options;
};

// Reads --param-groups: "PATTERN:lr=FACTOR,decay=DECAY;PATTERN:...", of whose keys some may be left
// out. Throws ConfigError, naming the group, for anything else.
std::vector<ParameterGroup> parse_parameter_groups(std::string_view text);

}  // namespace shale::models
