#pragma once

#include <functional>
#include <string>

namespace shale {

// Called while files are read, again and again, with the name of the one that is; an exception of
// its ends the reading.
using OnReading = std::function<void(const std::string& file)>;

}  // namespace shale
