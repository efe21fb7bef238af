#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "shale/test/machine_code/sass.h"

// How long a turn of a loop of Hopper's products takes once it has settled: its machine code is
// played, instruction by instruction, on one of a multiprocessor's four schedulers, which has a
// warp of each warpgroup. Nothing was measured here: machine code says what waits for what, and a
// machine's description how long that takes.
namespace shale::machine_code {

// Cycles of a multiprocessor of Hopper at its boost clock, of all kernels alike.
struct HopperTimes {
  // From an instruction's issue until its scoreboard says that the result is there: of shared
  // memory, uniform registers, special functions and the second level cache, about what
  // microbenchmarks find (arXiv:2402.13499, arXiv:2501.12084).
  double shared = 33, uniform = 12, special = 23, second_level = 273;
  // A guess, as the next three are. Of a barrier: from an arrival until who waits has its answer.
  double barrier = 40;
  // Of products: from issue until the tensor core begins, if it is free; from its end until a wait
  // for it is over.
  double product_start = 24, product_end = 36;
  // Of the copy engine: from the request of a box until its first bytes are there; bytes that come
  // in a cycle, and that come on average, as 132 multiprocessors share the second level cache: 5120
  // in a cycle (NVIDIA's A100 whitepaper) of the highest clock that an H100 has.
  double copy = 650, copy_bytes = 64, shared_copy_bytes = 5120.0 / 132 * (1.98 / 1.83);
};

// A kernel's loop, and what is not in its machine code.
struct PlayedLoop {
  const Kernel* kernel = nullptr;
  Loop loop{};
  int warpgroups = 1;    // that multiply, of a block
  int blocks = 1;        // of a multiprocessor
  int stages = 0;        // boxes under way at most; 0: the loop asks for what it waits for
  double box_bytes = 0;  // of what one wait is for
  double request = 0;    // cycles of the warp that asks for boxes, for each
};

// Instructions of the way through a loop that has the most products, waits for them, arrivals at
// barriers and copies, and is the shortest of those: what is rare, such as masks and waiting again,
// has none. In order. Throws InternalError where there is none.
std::vector<size_t> usual_way(const Kernel& kernel, const Loop& loop);

struct Played {
  double cycles = 0;      // of a turn, of one warpgroup, at the boost clock
  double own_cycles = 0;  // the same if the second level cache brought all that it is asked for
  double tensor = 0;      // cycles of the tensor core in that time, of all warpgroups and blocks
  double share() const { return tensor / cycles; }
  // At a multiple of the boost clock: the second level cache has a clock of its own.
  double cycles_at(double clock) const {
    return cycles > own_cycles ? std::max(own_cycles, cycles * clock) : own_cycles;
  }
};

// Throws InternalError where warps wait for ever.
Played play(const PlayedLoop& loop, const HopperTimes& times = {});

}  // namespace shale::machine_code
