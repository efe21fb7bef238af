#pragma once

#include <functional>

#include "shale/base/config.h"

namespace shale::bench {

// Implements main() of a program without ranks: returns the result of the body. If the body throws,
// prints one line about the error and returns its exit code.
int run_program(const std::function<int()>& body);

// Parses the flags into the fields of the spec. Returns true if the program is done, for example
// after --help; rank 0 has then printed the output.
bool parse_or_print(ConfigSpec& spec, int argc, char** argv, int rank = 0);

}  // namespace shale::bench
