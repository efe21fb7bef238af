#pragma once

#include <iosfwd>
#include <string>

#include "shale/base/json.h"

namespace shale {

// Prints a value for the message of a failed assertion.
std::ostream& operator<<(std::ostream& out, const Json& value);

namespace test {

// Reads a JSON file of any size.
Json json_file(const std::string& path);

}  // namespace test
}  // namespace shale
