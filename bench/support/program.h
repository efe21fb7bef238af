#pragma once

#include <functional>

namespace shale::bench {

// What the main() of a program without ranks returns: the result of the body, or, after an error
// and one line about it, the error's exit code.
int run_program(const std::function<int()>& body);

}  // namespace shale::bench
