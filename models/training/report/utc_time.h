#pragma once

#include <string>

namespace shale::models {

std::string utc_now();  // "2026-11-23T00:24:55.123Z"

}  // namespace shale::models
