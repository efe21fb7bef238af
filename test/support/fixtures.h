#pragma once

#include <string>

namespace shale::test {

// A file under test/fixtures.
std::string fixture_path(const std::string& name);
// What one holds that gzip packed, by the program gzip, as builds may lack zlib. Throws DataError.
std::string unpacked_fixture(const std::string& name);

}  // namespace shale::test
