#pragma once

#include "shale/test/machine_code/bounds.h"

// Cost of a GEMM tile outside its main loop, and the tensor core utilization that this leaves for a
// given k. Nothing here was measured.
namespace shale::machine_code {

enum class EpilogueKind {
  kPlain,  // results go from registers to TMA boxes in shared memory
  kGelu,   // results go through shared memory to tanh GELU, whose argument is stored too
};

// Returns the work of one warp between the main loops of two tiles, for this kind of epilogue. Of
// all paths through the code, takes those with the most special functions and boxes, and of these
// the shortest. Innermost loops, over rows, count twice. Loops around them, over parts, count
// `parts` times. Outer loops, over slabs, count twice.
Work epilogue_of(const Kernel& kernel, EpilogueKind kind, double parts);

// Returns the number of 32-column parts in the tile of a kernel of gemm90_bf16, from the kernel's
// name.
double parts_of(const Kernel& kernel);

// SM cycles that all warps together need for a tile.
struct TileCycles {
  double products = 0;  // cycles of the main loop per 64 elements of k
  double epilogue = 0;
  bool overlaps = false;  // true: the epilogue overlaps with another tile's main loop
};
TileCycles tile_cycles(const Work& main_loop, const Work& epilogue, double warps, bool overlaps,
                       const Gpu& gpu);

// Returns the tensor core utilization over a whole tile with this k.
double share_at(const TileCycles& tile, double k);

// Returns the section of the bounds page on the epilogues of these kernels of gemm90_bf16.
std::string epilogue_section(const std::vector<Kernel>& kernels, const Gpu& gpu);
// Returns the section on tiles that blocks share (kernels/gemm_plan.h).
std::string shares_section(const Gpu& gpu);

}  // namespace shale::machine_code
