#pragma once

#include <string>

namespace shale::test {

// A file under test/fixtures.
std::string fixture_path(const std::string& name);

}  // namespace shale::test
