#pragma once

#include <string>

#include "shale/base/json.h"

namespace shale::test {

// A JSON file of any size.
Json json_file(const std::string& path);

}  // namespace shale::test
