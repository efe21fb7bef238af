#pragma once

#include <functional>
#include <string>
#include <vector>

#include "shale/test/machine_code/timing.h"

// Compares the predictions of play() (timing.h) with published speeds of other projects' kernels.
// In each series of kernels, a kernel is slightly faster than the previous one for a single reason.
namespace shale::machine_code {

// One kernel of a series, with the facts that are not in its machine code.
struct Rung {
  std::string ladder, step;
  std::string object, kernel;  // object file, and part of the kernel's name, without spaces
  PlayedLoop loop{};  // facts on the loop; played() fills in the kernel and the loop itself
  double m = 0, n = 0, k = 0;  // size of the GEMM that a block computes; 0: the kernel is no GEMM
  double tiles = 0, multiprocessors = 0;
  // What follows a tile's main loop. kStores: stores at memory bandwidth, in blocks of one tile.
  // kStoresOfMany: the same, in blocks that already copy their next tile. kNone: nothing.
  enum class Rest { kStores, kStoresOfMany, kNone } rest = Rest::kNone;
  double published = 0;  // published speed, TFLOP/s
};

// Returns the estimated cycles that the producer warp needs to request a box; 0 if there is no
// producer warp.
double request_cycles(int stages);

// Reads ladders.txt. Throws DataError for a malformed line.
std::vector<Rung> read_rungs(const std::string& path);

// A kernel with its fastest matmul loop.
struct PlayedKernel {
  Kernel kernel;
  Played played;
};
// Simulates a kernel of an object for compute capability 9.0. Throws DataError if there is none.
PlayedKernel played(const std::string& object, const std::string& kernel, PlayedLoop loop,
                    const HopperTimes& times = {});

// Returns the clock in Hz that an H100's power limit allows for a kernel. `flops_at(clock)` gives
// the kernel's operations per second. Power is proportional to operations and to the square of the
// voltage, which is proportional to the clock.
double allowed_clock(const std::function<double(double)>& flops_at);

// Predicted speed for an H100 at its power-limited clock.
struct Prediction {
  double flops = 0, clock_hz = 0;
};
Prediction predicted(const Rung& rung, const PlayedKernel& kernel);

// Largest relative error of a predicted speed. A prediction with a larger error is withdrawn.
inline constexpr double kMostError = 0.15;

// Returns the table of predictions and measurements, for the objects in a folder.
std::string ladders_table(const std::vector<Rung>& rungs, const std::string& folder);

}  // namespace shale::machine_code
