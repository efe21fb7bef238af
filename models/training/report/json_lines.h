#pragma once

#include <functional>
#include <string>

#include "shale/runtime/io/json_object.h"

namespace shale::models {

// Calls `use` with each whole line of a file of JSON objects; a file that is not there has none.
// Throws DataError, naming file and line, for a line that is no object, and what `use` throws.
void for_each_line(const std::string& path, const std::function<void(const JsonObject& line)>& use);

}  // namespace shale::models
