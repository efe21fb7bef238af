#include "shale/bench/support/program.h"

#include <cstdio>
#include <new>

#include "shale/base/error.h"

namespace shale::bench {
namespace {

int fail(ExitCode code, const char* message) {
  std::fflush(stdout);
  std::fprintf(stderr, "error: %s\n", message);
  return static_cast<int>(code);
}

}  // namespace

int run_program(const std::function<int()>& body) {
  try {
    return body();
  } catch (const Error& error) {
    return fail(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    return fail(ExitCode::kOutOfMemory, "out of host memory");
  } catch (const std::exception& error) {
    return fail(ExitCode::kInternal, error.what());
  }
}

}  // namespace shale::bench
