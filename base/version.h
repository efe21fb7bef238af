#pragma once

#include <string_view>

namespace shale {

// "0.1.0"
std::string_view shale_version();

}  // namespace shale
