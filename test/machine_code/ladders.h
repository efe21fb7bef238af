#pragma once

#include <functional>
#include <string>
#include <vector>

#include "shale/test/machine_code/timing.h"

// Compares the predictions of play() (timing.h) with measurements: kernels of other projects, each
// slightly faster than the previous one for a single reason, with published speeds.
namespace shale::machine_code {

// One kernel of a series, with the facts that are not in its machine code.
struct Rung {
  std::string ladder, step;
  std::string object, kernel;  // object file, and part of the kernel's name without spaces
  PlayedLoop loop{};           // all but the kernel and its loop, which are filled in later
  // GEMM of a block. Attention: turns of a tile, bytes that a tile stores, bytes that other kernels
  // move before and after.
  double m = 0, n = 0, k = 0;
  double tiles = 0, multiprocessors = 0;
  // Work after a tile's main loop: stores at memory bandwidth, in blocks of one tile (kStores) or
  // in blocks whose next tile is already being copied (kStoresOfMany); or attention's.
  enum class Rest { kStores, kStoresOfMany, kAttention } rest = Rest::kStores;
  double published = 0;  // published speed, TFLOP/s
};

// Returns the estimated cycles per box request of the producer warp; 0 if there is none.
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

// Returns the clock in Hz that an H100's power limit allows for a kernel with `flops_at(clock)`
// operations a second. Power grows with operations and with the squared voltage, which is
// proportional to clock.
double allowed_clock(const std::function<double(double)>& flops_at);

// Predicted speed for an H100 at its power-limited clock.
struct Prediction {
  double flops = 0, clock_hz = 0;
};
Prediction predicted(const Rung& rung, const PlayedKernel& kernel);

// Largest error of a predicted speed that is not withdrawn.
inline constexpr double kMostError = 0.15;

// Returns the table of predictions and measurements, for the objects in a folder.
std::string ladders_table(const std::vector<Rung>& rungs, const std::string& folder);

}  // namespace shale::machine_code
