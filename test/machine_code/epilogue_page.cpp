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
  std::vector<double> at{};  // utilization at each k of kDepths
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
  constexpr double kStageBytes = 128;  // bytes of a row or column of a stage
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
      "\n## A tile's epilogue\n\nA tile's products pass the tensor cores, k / 64 times the loop "
      "above; then its sums go to memory.\nWhile both warpgroups of a block do that the tensor "
      "cores wait. Where each has a separate tile,\none's epilogue runs beside the other's "
      "products. Cycles of a multiprocessor, and what is left of the\npeak. Plain: sums go from "
      "registers to boxes; GELU: through shared memory to GELU by tanh, and\nits argument to "
      "memory too. The last rows are how many times faster two tiles in turns are.\n\nThese "
      "counts do not see the second-level cache. It has to bring so many bytes of operands in "
      "a\ncycle of the products, and no data sheet says whether it does; fewer where "
      "two blocks of a cluster\nshare what they read of b, as plans have it.\n\n"
      "| kernel | epilogue | products of 64 of k | epilogue | operands' bytes a cycle | in a "
      "cluster | k = 768 | k = 1600 | k = 4096 |\n|---|---|---|---|---|---|---|---|---|\n";
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
