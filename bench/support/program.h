#pragma once

#include <functional>

namespace shale::bench {

// Implements main() of a program without ranks: returns the result of the body. If the body throws,
// prints one line about the error and returns its exit code.
int run_program(const std::function<int()>& body);

}  // namespace shale::bench
