#include "shale/bench/support/program.h"

#include <cstdio>
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
bool parse_or_print(ConfigSpec& spec, int argc, char** argv, int rank) {
  const ParseResult parsed = parse_config(spec, argc, argv);
  if (parsed.should_exit && rank == 0) std::fputs(parsed.output.c_str(), stdout);
  return parsed.should_exit;
}

}  // namespace shale::bench
