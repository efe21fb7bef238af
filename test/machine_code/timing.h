#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "shale/test/machine_code/sass.h"

// Predicts the steady-state time of one iteration of a Hopper matmul loop by simulating its machine
// code, instruction by instruction, on one of an SM's four schedulers, which runs one warp of each
// warpgroup. Nothing was measured here: machine code gives the dependencies, and a hardware
// description the latencies.
namespace shale::machine_code {

// Latencies and rates of a Hopper SM, in cycles at the boost clock; the same for all kernels.
struct HopperTimes {
  // Latencies from issue until the scoreboard is set, for shared memory, uniform registers, special
  // functions and the L2 cache, close to microbenchmarks (arXiv:2402.13499, arXiv:2501.12084).
  double shared = 33, uniform = 12, special = 23, second_level = 273;
  // An estimate, like the next three numbers. Barrier latency, from an arrival until the waiter
  // knows of it.
  double barrier = 40;
  // Matmuls: cycles from issue until a free tensor core starts, and from the end of a matmul until
  // a wait returns.
  double product_start = 24, product_end = 36;
  // Copies: cycles from a box request until its first bytes arrive; bytes per cycle that an SM
  // receives at peak, from its own requests and those of its cluster, and that it reads on average
  // when 132 SMs share the L2 cache, which delivers 5120 bytes (NVIDIA's A100 whitepaper)
  // per cycle of an H100's highest clock.
  double copy = 650, copy_bytes = 64, shared_copy_bytes = 5120.0 / 132 * (1.98 / 1.83);
  // Bytes per cycle that an SM's shared memory reads or writes, for the tensor cores' operands,
  // copies, loads and stores together (CUDA C++ Programming Guide: 32 banks of 4 bytes).
  double port_bytes = 128;
};

// A kernel's loop, with facts that are not in its machine code.
struct PlayedLoop {
  const Kernel* kernel = nullptr;
  Loop loop{};
  int warpgroups = 1;    // multiplying warpgroups per block
  int blocks = 1;        // blocks per SM
  int stages = 0;        // most boxes in flight; 0: the loop requests its own boxes
  double box_bytes = 0;  // bytes per wait for a box, from the L2 cache
  // Bytes per wait for a box that copies write to shared memory: more than box_bytes if the blocks
  // of a cluster share what they read; 0: box_bytes.
  double written_bytes = 0;
  double reduced_bytes = 0;  // per iteration of a block, from shared memory to sums in L2
  double request = 0;    // producer cycles per box
};

// Returns the instructions, in order, of the usual path through a loop: the one with the most
// matmuls, waits for them, barrier arrivals and copies, and the shortest of such paths, which
// excludes rare code such as masks and retries. Throws InternalError if there is none.
std::vector<size_t> usual_way(const Kernel& kernel, const Loop& loop);

struct Played {
  double cycles = 0;      // cycles per iteration of one warpgroup, at the boost clock
  double own_cycles = 0;  // the same if the L2 bandwidth were unlimited
  double tensor = 0;      // busy tensor core cycles in that time, for all warpgroups and blocks
  double port = 0;        // the same for the shared-memory port
  double share() const { return tensor / cycles; }
  // Returns the cycles per iteration at a multiple of the boost clock: the L2 cache has a clock of
  // its own.
  double cycles_at(double clock) const {
    return cycles > own_cycles ? std::max(own_cycles, cycles * clock) : own_cycles;
  }
};

// Simulates the loop. Throws InternalError on deadlock.
Played play(const PlayedLoop& loop, const HopperTimes& times = {});

}  // namespace shale::machine_code
