#include "test/support/fixtures.h"

#include <filesystem>

namespace shale::test {

std::string fixture_path(const std::string& name) {
  // Next to this file's folder; __FILE__ is absolute in a CMake build.
  return (std::filesystem::path(__FILE__).parent_path().parent_path() / "fixtures" / name).string();
}

}  // namespace shale::test
