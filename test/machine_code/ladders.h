#pragma once

#include <functional>
#include <string>
#include <vector>

#include "shale/test/machine_code/timing.h"

// Whether play() (timing.h) says what was measured: kernels of others, each a little faster than
// the one before for one reason, whose authors published how much.
namespace shale::machine_code {

// A kernel of a ladder, and of its problem what is not in its machine code.
struct Rung {
  std::string ladder, step;
  std::string object, kernel;  // a file, and what the kernel's name has, without spaces
  PlayedLoop loop{};           // but for the kernel and its loop
  double m = 0, n = 0, k = 0;  // of a block's tile of a product; 0: there is none
  double tiles = 0, multiprocessors = 0;
  // What comes after a tile's products: its sums go to memory at its bandwidth, in blocks of one
  // tile; in blocks that go on to the next tile, whose copies have begun; nothing, of what has no
  // tiles.
  enum class Rest { kStores, kStoresOfMany, kNone } rest = Rest::kNone;
  double published = 0;  // TFLOP/s
};

// Cycles, a guess, of a turn of the warp that asks for boxes, where there is one.
double request_cycles(int stages);

// Reads ladders.txt. Throws DataError for a line that is none.
std::vector<Rung> read_rungs(const std::string& path);

// A kernel's loop over products, of those that it has the quickest.
struct PlayedKernel {
  Kernel kernel;
  Played played;
};
// Of an object of compute capability 9.0. Throws DataError where there is no such kernel.
PlayedKernel played(const std::string& object, const std::string& kernel, PlayedLoop loop);

// The clock in Hz that an H100's power allows for what does so much, in operations a second, at a
// clock: power goes with operations and with the square of the voltage, which goes with the clock.
double allowed_clock(const std::function<double(double)>& flops_at);

// Of an H100 with that clock, and of one that keeps its boost clock.
struct Prediction {
  double flops = 0, clock_hz = 0, flops_at_boost = 0;
};
Prediction predicted(const Rung& rung, const PlayedKernel& kernel);

// The table of the ladders, of objects in a folder.
std::string ladders_table(const std::vector<Rung>& rungs, const std::string& folder);

}  // namespace shale::machine_code
