// json_value FILE POINTER: prints the value at a JSON pointer (RFC 6901, such as /config/steps) of
// a file. Exits with 1 and a message if the file is not JSON or has no such value.
#include <cstdio>
#include <exception>
#include <fstream>

#include <nlohmann/json.hpp>

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: json_value FILE POINTER\n");
    return 64;
  }
  try {
    const auto document = nlohmann::json::parse(std::ifstream(argv[1]));
    std::printf("%s\n", document.at(nlohmann::json::json_pointer(argv[2])).dump().c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[1], error.what());
    return 1;
  }
}
