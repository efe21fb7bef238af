#pragma once

#include <cstdint>

namespace shale::emulator {

// Decides which of several runnable threads of a block, or streams of a device, runs next.
enum class Order : uint8_t {
  kFifo,    // the thread that has waited longest
  kLifo,    // the thread that became runnable last: it runs as far as it can before another starts
  kRandom,  // a random one, determined by Options::seed
};

// How emulated kernels run. A correct kernel gives the same results with all options.
struct Options {
  Order order = Order::kFifo;
  uint64_t seed = 1;  // for Order::kRandom
  bool track = true;  // check for races; halves the speed
  // Give each tensor of a context memory of exactly its size, so that an access past its end is an
  // error.
  bool exact = false;
  // Number of hardware queues, to which streams are assigned in turn. Work waits for all earlier
  // work in its queue, of any stream. 0: each stream has its own queue.
  int queues = 0;
};

// Options of streams that set none: the defaults above, changed by the environment
// variables SHALE_EMU_ORDER (fifo, lifo or random), SHALE_EMU_SEED, SHALE_EMU_TRACK (0, 1, or
// tensors: with `exact`) and SHALE_EMU_QUEUES, which are read once. Throws ConfigError if one of
// them has another value.
const Options& default_options();

}  // namespace shale::emulator
