#pragma once

#include <string>

namespace shale::test {

// Returns the path of a file in test/fixtures.
std::string fixture_path(const std::string& name);
// Returns a fixture uncompressed. Runs gzip, because builds may lack zlib. Throws DataError.
std::string unpacked_fixture(const std::string& name);

}  // namespace shale::test
