#pragma once

namespace shale {

// A function object with the overloads of several lambdas, for std::visit and the like.
template <typename... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};
template <typename... Functions>
Overloaded(Functions...) -> Overloaded<Functions...>;  // Clang before 17 does not deduce aggregates

}  // namespace shale
