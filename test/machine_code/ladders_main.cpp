// Prints the table of docs/gpu/ladders.md.
// Usage: machine_code_ladders LADDERS.TXT FOLDER
#include <cstdio>
#include <exception>

#include "shale/test/machine_code/ladders.h"

int main(int argc, char** argv) {
  using namespace shale::machine_code;
  if (argc != 3) {
    std::fprintf(stderr, "usage: machine_code_ladders LADDERS.TXT FOLDER\n");
    return 64;
  }
  try {
    std::fputs(ladders_table(read_rungs(argv[1]), argv[2]).c_str(), stdout);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 70;
  }
  return 0;
}
