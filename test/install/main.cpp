// Uses the installed runtime through its public headers only.
#include <shale/runtime/base/error.h>

#include <cstdio>

int main() {
  try {
    throw shale::ShapeError(shale::cat("linear: weight is ", 3, ", want ", 4));
  } catch (const shale::Error& error) {
    std::puts(error.what());
    return error.code() == shale::ExitCode::kInternal ? 0 : 1;
  }
}
