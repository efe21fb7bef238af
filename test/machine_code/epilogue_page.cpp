// Writes the section of the bounds page on epilogues, and how much of the peak they leave.
#include <vector>

#include "shale/base/error.h"
#include "shale/test/machine_code/epilogue.h"

namespace shale::machine_code {
namespace {

// A tile of c, and the `warps` that work on it.
struct Tile {
  const char* kernel;
  double rows, cols, warps;
  bool overlaps;
};
const std::vector<Tile> kTiles = {
    {"gemm90_kernel<bf16, Gemm90Config<256, 4, false>, false, true,", 128, 256, 8, false},
    {"gemm90_kernel<bf16, Gemm90PingPong<6, false>, false, true,", 128, 128, 4, true},
};
constexpr double kDepths[] = {768, 1600, 4096};

struct Shares {
  std::string rows;          // rows of the table
  std::vector<double> at{};  // tensor core utilization for each k in kDepths
};

const Kernel& kernel_of(const std::vector<Kernel>& kernels, const Tile& tile) {
  for (const Kernel& kernel : kernels) {
    if (kernel.name.starts_with(tile.kernel)) return kernel;
  }
  throw InternalError(cat("no kernel ", tile.kernel));
}

Shares shares_of(const std::vector<Kernel>& kernels, const Tile& tile, EpilogueKind kind,
                 const Gpu& gpu) {
  const Kernel& kernel = kernel_of(kernels, tile);
  const Work main = work_of(kernel, kernel.inner_loops("HGMMA").at(0));
  const TileCycles cycles = tile_cycles(main, epilogue_of(kernel, kind, parts_of(kernel)),
                                        tile.warps, tile.overlaps, gpu);
  constexpr double kStageBytes = 128;  // bytes of a pipeline stage per row or column of the tile
  Shares shares{cat("| `", kernel.name, "` | ", kind == EpilogueKind::kPlain ? "plain" : "GELU",
                    " | ", format("%.0f", cycles.products), " | ", format("%.0f", cycles.epilogue),
                    " | ", format("%.0f", (tile.rows + tile.cols) * kStageBytes / cycles.products),
                    " | ",
                    format("%.0f", (tile.rows + tile.cols / 2) * kStageBytes / cycles.products))};
  for (const double k : kDepths) {
    shares.at.push_back(share_at(cycles, k));
    shares.rows += cat(" | ", format("%.0f%%", 100 * shares.at.back()));
  }
  shares.rows += " |\n";
  return shares;
}

}  // namespace

std::string epilogue_section(const std::vector<Kernel>& kernels, const Gpu& gpu) {
  std::string text =
      R"(
## A tile's epilogue

After the tensor cores have computed a tile, in k / 64 passes of the loop above, the epilogue writes
its sums to memory. If both warpgroups of a block work on one tile, the tensor cores wait meanwhile.
If each warpgroup has a separate tile (ping-pong), the epilogue of one overlaps the GEMM of the
other. The table shows cycles of a multiprocessor, and the share of the peak that remains for three
sizes of k. Plain: sums go from registers to shared memory, and from there by TMA to memory. GELU:
the same with GELU (by tanh) between the two, and the argument of GELU is written to memory too. The last
rows show how many times faster ping-pong is.

These counts leave out the second-level cache, which must deliver the operand bytes per cycle that
the table shows. No data sheet says whether it can. In a cluster of two blocks, as plans have it, it
delivers fewer bytes, since the blocks share operand b.

)"
      "| kernel | epilogue | GEMM cycles per 64 of k | epilogue cycles | operand bytes per cycle | "
      "in a cluster | k = 768 | k = 1600 | k = 4096 |\n|---|---|---|---|---|---|---|---|---|\n";
  std::string gains;
  for (const EpilogueKind kind : {EpilogueKind::kPlain, EpilogueKind::kGelu}) {
    const Shares one = shares_of(kernels, kTiles[0], kind, gpu);
    const Shares turns = shares_of(kernels, kTiles[1], kind, gpu);
    text += one.rows + turns.rows;
    gains += cat("| the second over the first | ", kind == EpilogueKind::kPlain ? "plain" : "GELU",
                 " | | | |");
    for (size_t i = 0; i < one.at.size(); ++i) {
      gains += cat(" | ", format("%.2f", turns.at[i] / one.at[i]));
    }
    gains += " |\n";
  }
  return text + gains;
}

}  // namespace shale::machine_code
