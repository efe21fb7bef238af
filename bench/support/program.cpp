#include "shale/bench/support/program.h"

#include <exception>

#include "shale/base/failure.h"

namespace shale::bench {

int run_program(const std::function<int()>& body) {
  try {
    return body();
  } catch (...) {
    const Failure failure = failure_of(std::current_exception());
    print_error(failure.message);
    return static_cast<int>(failure.code);
  }
}

}  // namespace shale::bench
