#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "shale/test/machine_code/sass.h"

// Predicts how long one iteration of a Hopper matmul loop takes in the steady state. It simulates
// the machine code, instruction by instruction, on one of an SM's four schedulers, which runs one
// warp of each warpgroup. Nothing here was measured: machine code gives the dependencies, and a
// description of the hardware the latencies.
namespace shale::machine_code {

// Latencies and rates of a Hopper SM, in cycles at the boost clock. They are the same for all
// kernels.
struct HopperTimes {
  // Cycles from issue until the scoreboard is set, for shared memory, uniform registers, special
  // functions and the L2 cache. They are close to microbenchmarks (arXiv:2402.13499,
  // arXiv:2501.12084).
  double shared = 33, uniform = 12, special = 23, second_level = 273;
  // Cycles from an arrival at a barrier until a waiting warp knows of it. This number and the next
  // three are estimates.
  double barrier = 40;
  // Cycles from the issue of a matmul until a free tensor core starts it, and from its end until a
  // wait for it returns.
  double product_start = 24, product_end = 36;
  // `copy`: cycles from the request of a box until its first bytes arrive. `copy_bytes`: bytes per
  // cycle that an SM receives at peak, requested by itself or by its cluster. `shared_copy_bytes`:
  // bytes per cycle that an SM reads on average when 132 SMs share the L2 cache. The L2 cache
  // delivers 5120 bytes per cycle (NVIDIA's A100 whitepaper) of an H100's highest clock.
  double copy = 650, copy_bytes = 64, shared_copy_bytes = 5120.0 / 132 * (1.98 / 1.83);
  // Bytes per cycle that an SM's shared memory reads or writes, for the tensor cores' operands,
  // copies, loads and stores together (CUDA C++ Programming Guide: 32 banks of 4 bytes).
  double port_bytes = 128;
};

// A kernel's loop, with facts that its machine code does not contain.
struct PlayedLoop {
  const Kernel* kernel = nullptr;
  Loop loop{};
  int warpgroups = 1;    // warpgroups per block that issue matmuls
  int blocks = 1;        // blocks per SM
  int stages = 0;        // maximum number of boxes in flight; 0: the loop requests its own boxes
  double box_bytes = 0;  // bytes read from the L2 cache for each wait for a box
  // Bytes that copies write to shared memory for each wait for a box. This is more than box_bytes
  // if the blocks of a cluster share what they read. 0: equals box_bytes.
  double written_bytes = 0;
  // Bytes per iteration of a block that are added from shared memory to sums in the L2 cache.
  double reduced_bytes = 0;
  double request = 0;  // cycles that the producer needs per box
};

// Returns the instructions, in order, on the usual path through a loop. That is the path with the
// most matmuls, waits for matmuls, barrier arrivals and copies. Of several such paths it is the
// shortest, which excludes rare code such as masks and retries. Throws InternalError if there is
// none.
std::vector<size_t> usual_way(const Kernel& kernel, const Loop& loop);

struct Played {
  double cycles = 0;      // cycles per iteration of one warpgroup, at the boost clock
  double own_cycles = 0;  // `cycles` if the L2 bandwidth were unlimited
  double tensor = 0;      // tensor core cycles in an iteration, for all warpgroups and blocks
  // Cycles of the shared-memory port in an iteration, for all warpgroups and blocks.
  double port = 0;
  double share() const { return tensor / cycles; }
  // Returns the cycles per iteration if the SM's clock is `clock` times the boost clock. The L2
  // cache keeps its own clock.
  double cycles_at(double clock) const {
    return cycles > own_cycles ? std::max(own_cycles, cycles * clock) : own_cycles;
  }
};

// Simulates the loop. Throws InternalError on deadlock.
Played play(const PlayedLoop& loop, const HopperTimes& times = {});

}  // namespace shale::machine_code
