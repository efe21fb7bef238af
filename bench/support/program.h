#pragma once

#include <functional>

namespace shale::bench {

// Implements main() of a program without ranks: returns the result of the body; after an error
// prints one line about it and returns its exit code.
int run_program(const std::function<int()>& body);

}  // namespace shale::bench
