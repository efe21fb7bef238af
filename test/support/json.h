#pragma once

#include <iosfwd>
#include <string>

#include "shale/base/json.h"

namespace shale {

// What a failed assertion prints of a value.
std::ostream& operator<<(std::ostream& out, const Json& value);

namespace test {

// A JSON file of any size.
Json json_file(const std::string& path);

}  // namespace test
}  // namespace shale
