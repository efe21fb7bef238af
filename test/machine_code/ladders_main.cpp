// Prints the table of docs/contributing/ladders.md, or the predicted time of one kernel's loop.
// Usage:
// - machine_code_ladders LADDERS.TXT FOLDER
// - machine_code_ladders OBJECT KERNEL WARPGROUPS BLOCKS STAGES BOX WRITTEN REDUCED
//
// The second form takes the values of a line of ladders.txt.
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "shale/test/machine_code/ladders.h"

int main(int argc, char** argv) {
  using namespace shale::machine_code;
  if (argc != 3 && argc != 9) {
    std::fprintf(stderr,
                 "usage: machine_code_ladders LADDERS.TXT FOLDER\n"
                 "       machine_code_ladders OBJECT KERNEL WARPGROUPS BLOCKS STAGES BOX WRITTEN "
                 "REDUCED\n");
    return 64;
  }
  try {
    if (argc == 3) {
      std::fputs(ladders_table(read_rungs(argv[1]), argv[2]).c_str(), stdout);
      return 0;
    }
    const PlayedKernel kernel = played(argv[1], argv[2],
                                       {.warpgroups = std::atoi(argv[3]),
                                        .blocks = std::atoi(argv[4]),
                                        .stages = std::atoi(argv[5]),
                                        .box_bytes = std::atof(argv[6]),
                                        .written_bytes = std::atof(argv[7]),
                                        .reduced_bytes = std::atof(argv[8]),
                                        .request = request_cycles(std::atoi(argv[5]))});
    std::printf("%s: %.0f cycles a turn, tensor cores busy for %.0f of them, %.0f%%, port %.0f\n",
                kernel.kernel.name.c_str(), kernel.played.cycles, kernel.played.tensor,
                100 * kernel.played.share(), kernel.played.port);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 70;
  }
  return 0;
}
