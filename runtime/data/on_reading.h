#pragma once

#include <functional>
#include <string>

namespace shale {

// Called repeatedly while files are read, with the name of the current file. If it throws, reading
// stops with that exception.
using OnReading = std::function<void(const std::string& file)>;

}  // namespace shale
