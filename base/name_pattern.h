#pragma once

#include <string_view>

namespace shale {

// Returns whether the pattern matches the name. Each `*` matches any characters, as in "h.*.bias".
bool name_fits(std::string_view pattern, std::string_view name);

}  // namespace shale
