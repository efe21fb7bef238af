#pragma once

#include <functional>
#include <string>

#include "shale/runtime/io/json_object.h"

namespace shale::models {

// Calls `use` for each complete line of a file of JSON objects; a missing file has no lines. Throws
// DataError, with file and line, for a line that is not an object, and rethrows what `use` throws.
void for_each_line(const std::string& path, const std::function<void(const JsonObject& line)>& use);

}  // namespace shale::models
