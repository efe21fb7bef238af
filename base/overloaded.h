#pragma once

namespace shale {

// A function object with the overloads of several lambdas, for std::visit and the like.
template <typename... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};
template <typename... Functions>
// Clang before 17 cannot deduce the arguments of an aggregate
Overloaded(Functions...)->Overloaded<Functions...>;

}  // namespace shale
