#pragma once

#include <functional>
#include <string>

namespace shale {

// Called repeatedly while files are read, with the name of the current one. An exception that it
// throws aborts the reading.
using OnReading = std::function<void(const std::string& file)>;

}  // namespace shale
