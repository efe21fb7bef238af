#include "test/support/emulator.h"

#include "runtime/base/text.h"

namespace shale::test {

using emulator::Options;
using emulator::Order;

const std::vector<Options>& emulator_orders() {
  static const std::vector<Options> all = [] {
    std::vector<Options> list = {{.order = Order::kFifo}, {.order = Order::kLifo}};
    for (uint64_t seed = 1; seed <= 10; ++seed) {
      list.push_back({.order = Order::kRandom, .seed = seed});
    }
    return list;
  }();
  return all;
}

std::string describe(const Options& options) {
  switch (options.order) {
    case Order::kFifo: return "fifo";
    case Order::kLifo: return "lifo";
    case Order::kRandom: break;
  }
  return cat("random ", options.seed);
}

}  // namespace shale::test
