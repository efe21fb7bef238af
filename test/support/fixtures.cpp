#include "shale/test/support/fixtures.h"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "shale/base/error.h"

namespace shale::test {

std::string fixture_path(const std::string& name) {
  // Set for programs that are copied to other folders.
  const char* elsewhere = std::getenv("SHALE_TEST_FIXTURES");
  const std::filesystem::path folder = elsewhere != nullptr ? elsewhere : SHALE_TEST_FIXTURES;
  return (folder / name).string();
}

std::string unpacked_fixture(const std::string& name) {
  const std::string command = cat("gzip -dc '", fixture_path(name), "'");
  FILE* unpacked = popen(command.c_str(), "r");
  if (unpacked == nullptr) throw DataError(cat(command, ": cannot be started"));
  std::string bytes;
  std::array<char, 65536> part;
  while (const size_t size = std::fread(part.data(), 1, part.size(), unpacked)) {
    bytes.append(part.data(), size);
  }
  if (const int status = pclose(unpacked); status != 0) {
    throw DataError(cat(command, ": status ", status));
  }
  return bytes;
}

}  // namespace shale::test
