// Prints the bounds page for the objects of this build.
#include <cstdio>
#include <exception>

#include "shale/test/machine_code/bounds.h"

int main() {
  try {
    std::fputs(shale::machine_code::bounds_page(SHALE_CUDA_OBJECTS, SHALE_CUDA_VERSION).c_str(),
               stdout);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 70;
  }
  return 0;
}
