// Writes the bounds page's section about GEMMs whose last round of tiles leaves SMs idle.
#include "shale/base/error.h"
#include "shale/kernels/gemm_plan.h"
#include "shale/kernels/gemm_problem.h"
#include "shale/test/machine_code/epilogue.h"

namespace shale::machine_code {
namespace {

using kernels::GemmPlan;
using kernels::GemmProblem;

struct Product {
  const char* name;
  int64_t m, n, k;
  bool is_gradient;  // true: a weight gradient, so c is f32
};
// GEMMs of training steps of 16,384 tokens, and of one step of 8,192.
constexpr Product kProducts[] = {
    {"width 768, attention's output, gradient", 768, 768, 16384, true},
    {"width 768, queries, keys and values, gradient", 2304, 768, 16384, true},
    {"width 768, feed-forward, gradient", 3072, 768, 16384, true},
    {"width 768, down, 8,192 tokens", 8192, 768, 3072, false},
    {"width 1,024, queries, keys and values, gradient", 3072, 1024, 16384, true},
    {"width 1,280, feed-forward, gradient", 5120, 1280, 16384, true},
    {"width 1,600, queries, keys and values, gradient", 4800, 1600, 16384, true},
    {"width 4,096, attention's output, gradient", 4096, 4096, 16384, true},
};

GemmProblem problem_of(const Product& product) {
  GemmProblem problem;
  problem.m = product.m, problem.n = product.n, problem.k = product.k;
  problem.a = {.dtype = DType::kBF16, .transposed = product.is_gradient};
  problem.b = {.dtype = DType::kBF16, .transposed = !product.is_gradient};
  problem.c.dtype = product.is_gradient ? DType::kF32 : DType::kBF16;
  problem.accumulate = product.is_gradient;
  return problem;
}

std::string row_of(const Product& product, const Gpu& gpu) {
  const GemmProblem problem = problem_of(product);
  const GemmPlan plan = gemm_plan(problem, {.hopper = true});
  const auto [all, shared] = tiles_of(problem, plan.tile, plan.cluster);
  const auto clusters = double(int(gpu.multiprocessors) / plan.cluster);
  const double rounds = double((all + int64_t(clusters) - 1) / int64_t(clusters));
  // Cycles that one tile takes.
  const double cycles =
      double(rows_of(plan.tile) * cols_of(plan.tile) * product.k) / gpu.tensor_fma;
  const bool shares = plan.shares > 0;
  const double joining = shares ? sharing_cycles(plan.tile, shared, plan.shares) : 0;
  const double now =
      shares ? (rounds - 1) * cycles + cycles * double(shared) / double(plan.shares) + joining
             : rounds * cycles;
  return cat("| ", product.name, " | ", product.m, " x ", product.n, ", ", product.k, " | ",
             rows_of(plan.tile), " x ", cols_of(plan.tile), " | ", all * plan.cluster, " | ",
             format("%.0f%%", 100 * double(all) / (rounds * clusters)), " | ",
             plan.shares * plan.cluster, " | ", format("%.0f", cycles), " | ",
             format("%.0f", joining), " | ", format("%.2f", rounds * cycles / now), " |\n");
}

}  // namespace

std::string shares_section(const Gpu& gpu) {
  std::string text =
      R"(
## Tiles that blocks share

If the last round of tiles would leave multiprocessors idle, a plan splits the k of these tiles into
shares of equal size, one for each block (split-k). A block writes its partial sums, 64 bytes per
cycle, and waits 1,500 cycles for the write and for a counter (both numbers are guesses). The last
block of a tile reads the partial sums of the others and adds them. The table shows the share of an
H100's multiprocessors that have work if no tile is split, the number of shares, the cycles of a
multiprocessor to compute a tile (as above) and to join a share, and the speedup by splitting.
Epilogues are not counted.

)"
      "| GEMM | c, k | tile | tiles | busy without a split | shares | cycles of a tile | cycles to "
      "join a share | speedup |\n|---|---|---|---|---|---|---|---|---|\n";
  for (const Product& product : kProducts) text += row_of(product, gpu);
  return text;
}

}  // namespace shale::machine_code
