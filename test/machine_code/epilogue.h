#pragma once

#include "shale/test/machine_code/bounds.h"

// What a tile of a product costs besides its main loop, and what that leaves of the tensor cores'
// peak at a given k. Nothing here was measured.
namespace shale::machine_code {

enum class EpilogueKind {
  kPlain,  // products go from registers to boxes
  kGelu,   // they go through shared memory to GELU by tanh, whose argument is stored too
};

// The work of one warp between a tile's main loop and the next one's, on the way through the code
// that such an epilogue takes: of the ways with the most special functions and boxes the shortest.
// Loops on that way go round twice, over rows, and as often as a tile has parts, which hold those
// over rows; around these twice again, over slabs.
Work epilogue_of(const Kernel& kernel, EpilogueKind kind, double parts);

// Parts of 32 columns of the tile of a kernel of gemm90_bf16, by its name.
double parts_of(const Kernel& kernel);

// Cycles of a multiprocessor for a tile, of the warps that work on it.
struct TileCycles {
  double products = 0;  // 64 of k
  double epilogue = 0;
  bool overlaps = false;  // the epilogue runs beside another tile's products
};
TileCycles tile_cycles(const Work& main_loop, const Work& epilogue, double warps, bool overlaps,
                       const Gpu& gpu);

// Of the tensor cores' time over all of a tile.
double share_at(const TileCycles& tile, double k);

// The section of the page of bounds, of these kernels of gemm90_bf16.
std::string epilogue_section(const std::vector<Kernel>& kernels, const Gpu& gpu);
// That of tiles that blocks share (kernels/gemm_plan.h).
std::string shares_section(const Gpu& gpu);

}  // namespace shale::machine_code
