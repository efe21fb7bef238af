#pragma once

#include <string_view>

namespace shale {

// Version as text: "0.2.0".
std::string_view shale_version();

}  // namespace shale
