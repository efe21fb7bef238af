#pragma once

#include <string_view>

namespace shale {

// Whether the pattern fits a name: each `*` stands for any characters, "h.*.bias".
bool name_fits(std::string_view pattern, std::string_view name);

}  // namespace shale
