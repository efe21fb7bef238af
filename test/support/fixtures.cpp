#include "shale/test/support/fixtures.h"

#include <cstdlib>
#include <filesystem>

namespace shale::test {

std::string fixture_path(const std::string& name) {
  const char* elsewhere = std::getenv("SHALE_TEST_FIXTURES");  // for a program that was copied
  const std::filesystem::path folder = elsewhere != nullptr ? elsewhere : SHALE_TEST_FIXTURES;
  return (folder / name).string();
}

}  // namespace shale::test
