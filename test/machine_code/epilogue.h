#pragma once

#include "shale/test/machine_code/bounds.h"

// Cost of a GEMM tile besides its main loop, and the share of the tensor cores' peak that remains
// for a given k. Nothing here was measured.
namespace shale::machine_code {

enum class EpilogueKind {
  kPlain,  // results go from registers to boxes
  kGelu,   // through shared memory to tanh GELU, which also stores its argument
};

// Work of one warp between the main loops of two tiles, on the path of this kind of epilogue: the
// shortest of the paths with the most special functions and boxes. Loops on the path run twice
// (over rows), loops around them `parts` times, and loops around these twice (over slabs).
Work epilogue_of(const Kernel& kernel, EpilogueKind kind, double parts);

// Number of 32-column parts in the tile of a kernel of gemm90_bf16, by its name.
double parts_of(const Kernel& kernel);

// SM cycles for a tile, with all warps that work on it.
struct TileCycles {
  double products = 0;  // per 64 of k
  double epilogue = 0;
  bool overlaps = false;  // overlaps with another tile's main loop
};
TileCycles tile_cycles(const Work& main_loop, const Work& epilogue, double warps, bool overlaps,
                       const Gpu& gpu);

// Tensor core utilization over a whole tile.
double share_at(const TileCycles& tile, double k);

// Section of the bounds page on these kernels of gemm90_bf16.
std::string epilogue_section(const std::vector<Kernel>& kernels, const Gpu& gpu);
// Section on tiles that blocks share (kernels/gemm_plan.h).
std::string shares_section(const Gpu& gpu);

}  // namespace shale::machine_code
