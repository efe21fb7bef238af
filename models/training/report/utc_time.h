#pragma once

#include <optional>
#include <string>

namespace shale::models {

// Converts a time in the format of utc_now() to seconds since 1970. Returns nothing for other text.
std::optional<double> utc_seconds(const std::string& text);
std::string utc_now();  // Returns the time, such as "2026-11-23T00:24:55.123Z".

}  // namespace shale::models
