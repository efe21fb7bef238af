#pragma once

#include <cstdint>

namespace shale::emulator {

// Which of several runnable threads (of a block) or queues (of a device) runs next.
enum class Order : uint8_t {
  kFifo,    // the one that has waited longest
  kLifo,    // the newest: one thread runs as far as it can before another starts
  kRandom,  // random, by seed
};

// How emulated kernels run. A correct kernel gives the same results with all options.
struct Options {
  Order order = Order::kFifo;
  uint64_t seed = 1;  // for Order::kRandom
  bool track = true;  // check for races; halves the speed
};

// Options of streams that have none of their own: the defaults above, changed by the environment
// variables SHALE_EMU_ORDER (fifo, lifo or random), SHALE_EMU_SEED and SHALE_EMU_TRACK (0 or 1),
// which are read once. Throws ConfigError if one of them has another value.
const Options& default_options();

}  // namespace shale::emulator
