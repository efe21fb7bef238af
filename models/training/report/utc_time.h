#pragma once

#include <optional>
#include <string>

namespace shale::models {

// Returns the seconds from 1970 to such a time; nothing if the text is none.
std::optional<double> utc_seconds(const std::string& text);
std::string utc_now();  // "2026-11-23T00:24:55.123Z"

}  // namespace shale::models
