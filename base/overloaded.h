#pragma once

namespace shale {

// One function object with the overloads of several lambdas, such as for std::visit.
template <typename... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};
template <typename... Functions>
Overloaded(Functions...) -> Overloaded<Functions...>;  // Clang before 17 does not deduce aggregates

}  // namespace shale
