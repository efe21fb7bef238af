#pragma once

#include "shale/test/machine_code/bounds.h"

// Cost of a GEMM tile besides its main loop, and the tensor core utilization that remains for a
// given k. Nothing here was measured.
namespace shale::machine_code {

enum class EpilogueKind {
  kPlain,  // results go from registers to boxes in shared memory
  kGelu,   // results go through shared memory to tanh GELU, and its argument is stored too
};

// Returns the work of one warp between the main loops of two tiles, on the path of this kind of
// epilogue: the shortest of the paths with the most special functions and boxes. Innermost loops on
// the path run twice (over rows), loops around them `parts` times (over parts), and outer loops
// twice (over slabs).
Work epilogue_of(const Kernel& kernel, EpilogueKind kind, double parts);

// Returns the number of 32-column parts in the tile of a kernel of gemm90_bf16, from the kernel's
// name.
double parts_of(const Kernel& kernel);

// SM cycles for a tile, for all warps that work on it.
struct TileCycles {
  double products = 0;  // cycles of the main loop per 64 of k
  double epilogue = 0;
  bool overlaps = false;  // the epilogue overlaps with another tile's main loop
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
